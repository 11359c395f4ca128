#include "compile/held_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <set>

#include "compile/remove_tree.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

constexpr const char* kinds[] = {"making-", "cold-", "old-"};
constexpr const char* lock_extension = ".lock";

fs::path lock_of(const fs::path& folder) { return fs::path(folder) += lock_extension; }

int open_lock(const fs::path& folder) {
  return open(lock_of(folder).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
}

/// Names of held folders in `parent`, also of those that only their lock is left of.
std::set<std::string> held_names(const fs::path& parent) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    auto name = entry.path().filename().string();
    for (const char* kind : kinds) {
      if (!name.starts_with(kind)) continue;
      if (name.ends_with(lock_extension)) name.resize(name.size() - std::strlen(lock_extension));
      names.insert(name);
      break;
    }
  }
  return names;
}

}  // namespace

std::string unique_name(const std::string& kind) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}", kind, random(), random());
}

// The lock is taken before there is a folder: a folder without its lock taken is abandoned.
HeldFolder::HeldFolder(const fs::path& parent, const std::string& name) : path_(parent / name) {
  std::error_code error;
  fs::create_directories(parent, error);  // else whoever fills the folder says why it cannot
  handle_ = open_lock(path_);
  if (handle_ >= 0) flock(handle_, LOCK_SH | LOCK_NB);
}

HeldFolder::~HeldFolder() {
  remove_tree(path_);
  if (handle_ < 0) return;
  unlink(lock_of(path_).c_str());
  close(handle_);
}

void remove_abandoned(const fs::path& parent) noexcept try {
  for (const auto& name : held_names(parent)) {
    const auto folder = parent / name;
    const int handle = open_lock(folder);
    if (handle < 0) continue;
    if (flock(handle, LOCK_EX | LOCK_NB) == 0) {
      remove_tree(folder);
      unlink(lock_of(folder).c_str());
    }
    close(handle);
  }
} catch (const std::exception&) {  // what is left takes space, nothing else
}

}  // namespace trainsuite
