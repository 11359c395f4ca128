#pragma once
// A lock among processes, also of other jobs, that share a folder.
#include <filesystem>
#include <functional>
#include <string>

namespace trainsuite {

class FileLock {
 public:
  /// Waits up to `limit_seconds`, polled; `watch` is called meanwhile and may throw.
  FileLock(const std::filesystem::path& file, double limit_seconds,
           const std::function<void()>& watch);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool held() const { return held_; }
  const std::string& reason() const { return reason_; }  // why it is not held

 private:
  int handle_ = -1;
  bool held_ = false;
  std::string reason_;
};

}  // namespace trainsuite
