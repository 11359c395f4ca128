#include "result/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "core/error.h"
#include "core/synced_file.h"

namespace trainsuite {

namespace {

constexpr off_t mark_offset = off_t{1} << 62;  // beyond any content

[[noreturn]] void fail_to_write(const std::string& path, int code) {
  fail("cannot write {}: {}; the cases recorded before are kept", path, std::strerror(code));
}

[[noreturn]] void fail_to_create(const std::string& path, int code) {
  fail("cannot create {}: {}; nothing is recorded", path, std::strerror(code));
}

using Failure = void (*)(const std::string& path, int code);

/// Closes and, unless released, removes the file: nothing stays behind on failure.
class TemporaryFile {
 public:
  /// `failure` throws the error about `path`.
  TemporaryFile(const std::string& path, Failure failure)
      : path_(path), failure_(failure), name_(temporary_name(path)) {
    descriptor_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) failure_(path_, errno);
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!released_) unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write_synced(const Bytes& content) {
    std::size_t done = 0;
    while (done < content.size()) {
      const ssize_t count = write(descriptor_, content.data() + done, content.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) failure_(path_, errno);
      done += static_cast<std::size_t>(count);
    }
    while (fsync(descriptor_) != 0)
      if (errno != EINTR) failure_(path_, errno);
    const int closed = close(descriptor_);
    descriptor_ = -1;
    if (closed != 0 && errno != EINTR) failure_(path_, errno);
  }
  const std::string& name() const { return name_; }
  void release() { released_ = true; }

 private:
  const std::string path_;
  const Failure failure_;
  const std::string name_;
  int descriptor_ = -1;
  bool released_ = false;
};

}  // namespace

HeldFile::HeldFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
  if (descriptor_ < 0) fail("cannot open {}: {}", path, std::strerror(errno));
}

HeldFile::~HeldFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool HeldFile::lies_at(const std::string& path) const {
  struct stat there {
  }, held{};
  return fstat(descriptor_, &held) == 0 && stat(path.c_str(), &there) == 0 &&
         there.st_dev == held.st_dev && there.st_ino == held.st_ino;
}

bool HeldFile::mark_used() const {
  struct flock mark {};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  mark.l_start = mark_offset;
  mark.l_len = 1;
  while (fcntl(descriptor_, F_OFD_SETLK, &mark) != 0) {
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno != EINTR) return true;
  }
  return true;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporary_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string base = slash == std::string::npos ? path : path.substr(slash + 1);
  return fmt::format("{}.{}.{}.{:08x}.tmp", folder, base, getpid(), std::random_device()());
}

std::optional<HeldFile> create_exclusively(const std::string& path, const Bytes& content) {
  TemporaryFile temporary(path, fail_to_create);
  temporary.write_synced(content);
  HeldFile held(temporary.name());
  held.mark_used();  // before the name is there for others to find
  if (link(temporary.name().c_str(), path.c_str()) != 0) {
    if (errno == EEXIST) return std::nullopt;
    // File systems without hard links: claim the name, then put the content in its place.
    const int claim = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (claim < 0 && errno == EEXIST) return std::nullopt;
    if (claim < 0) fail_to_create(path, errno);
    close(claim);
    if (rename(temporary.name().c_str(), path.c_str()) != 0) fail_to_create(path, errno);
    temporary.release();
  }
  sync_folder(folder_of(path));
  return held;
}

HeldFile replace_durably(const std::string& path, const Bytes& content) {
  TemporaryFile temporary(path, fail_to_write);
  temporary.write_synced(content);
  HeldFile held(temporary.name());
  held.mark_used();
  if (rename(temporary.name().c_str(), path.c_str()) != 0) fail_to_write(path, errno);
  temporary.release();
  sync_folder(folder_of(path));
  return held;
}

Bytes read_whole(const std::string& path) {
  // Without O_NONBLOCK opening a FIFO waits for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail("cannot read {}: {}", path, std::strerror(errno));
  struct stat status {};
  int code = fstat(descriptor, &status) == 0 ? 0 : errno;
  if (code == 0 && !S_ISREG(status.st_mode)) {
    close(descriptor);
    fail("cannot read {}: no plain file", path);
  }
  Bytes content(code == 0 ? static_cast<std::size_t>(status.st_size) : 0);
  std::size_t done = 0;
  while (code == 0 && done < content.size()) {
    const ssize_t count = read(descriptor, content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) code = count < 0 ? errno : EIO;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  close(descriptor);
  if (code != 0) fail("cannot read {}: {}", path, std::strerror(code));
  return content;
}

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    fail("cannot make the folder {}: {}", path, std::strerror(errno));
  sync_folder(folder_of(path));
}

}  // namespace trainsuite
