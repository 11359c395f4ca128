#pragma once
// A temporary folder that says by a lock that somebody uses it, so that another process can remove
// it when its user was killed.
#include <filesystem>
#include <string>

namespace trainsuite {

class HeldFolder {
 public:
  /// Reserves `parent`/`name`, whose user makes the folder itself. `name` begins with "making-",
  /// "cold-" or "old-" and nobody else uses it, or only processes that hold it too. Where locks
  /// are not to be had it is not held, and never taken for abandoned there either.
  HeldFolder(const std::filesystem::path& parent, const std::string& name);
  ~HeldFolder();  // removes the folder
  HeldFolder(const HeldFolder&) = delete;
  HeldFolder& operator=(const HeldFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int handle_ = -1;
};

/// "<kind>-<16 random hexadecimal digits>"
std::string unique_name(const std::string& kind);

/// Removes the held folders in `parent` whose users are gone, on whatever host they ran.
void remove_abandoned(const std::filesystem::path& parent) noexcept;

}  // namespace trainsuite
