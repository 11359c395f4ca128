#pragma once
// Whole files that appear at once and stay: write beside, sync, rename, sync the folder.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainsuite {

using Bytes = std::vector<std::uint8_t>;

/// Remembers which file lies at a path. It is held open, so its number is not given to another.
class HeldFile {
 public:
  HeldFile() = default;
  /// Throws Error when there is no file at `path`.
  explicit HeldFile(const std::string& path);
  ~HeldFile();
  HeldFile(HeldFile&& other) noexcept { swap(other); }
  HeldFile& operator=(HeldFile&& other) noexcept {
    swap(other);
    return *this;
  }
  /// Whether `path` still names that file.
  bool lies_at(const std::string& path) const;
  /// Marks the file as in use until this object ends or the process does; true where it is marked,
  /// or where the file system has no locks. False: another process has marked it. HDF5's own locks
  /// are of another kind, so readers are not kept out (on NFS they are).
  bool mark_used() const;

 private:
  void swap(HeldFile& other) noexcept { std::swap(descriptor_, other.descriptor_); }
  int descriptor_ = -1;
};

/// The folder part of `path`, "." where it has none.
std::string folder_of(const std::string& path);

/// A new name beside `path`, of the form that both functions below write to first: it is longer
/// than `path`.
std::string temporary_name(const std::string& path);

/// Creates `path` with that content, marked as used; durable on return. Empty when the path is
/// taken, which is then untouched. Throws Error naming the path when it cannot be written.
std::optional<HeldFile> create_exclusively(const std::string& path, const Bytes& content);

/// Puts that content at `path`, in place of what is there, marked as used; durable on return.
/// Throws Error naming the path; what was there is then still there.
HeldFile replace_durably(const std::string& path, const Bytes& content);

Bytes read_whole(const std::string& path);

/// Makes a folder, durably; one that exists is fine.
void make_folder(const std::string& path);

}  // namespace trainsuite
