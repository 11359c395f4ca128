#pragma once
// Whole files that appear at once and stay: write beside, sync, rename, sync the folder.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainsuite {

using Bytes = std::vector<std::uint8_t>;

/// Which file lies at a path, whatever its name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};

/// The file at `path`; throws Error when there is none.
FileIdentity identify(const std::string& path);

/// The folder part of `path`, "." where it has none.
std::string folder_of(const std::string& path);

/// Creates `path` with that content; durable on return. False when the path is taken, which is
/// then untouched. Throws Error naming the path when it cannot be written.
bool create_exclusively(const std::string& path, const Bytes& content);

/// Puts that content at `path`, in place of what is there; durable on return. Throws Error naming
/// the path; what was there is then still there.
void replace_durably(const std::string& path, const Bytes& content);

Bytes read_whole(const std::string& path);

/// Makes a folder, durably; one that exists is fine.
void make_folder(const std::string& path);

/// Makes names in `folder` durable.
void sync_folder(const std::string& folder);

}  // namespace trainsuite
