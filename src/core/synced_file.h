#pragma once
// Files and names that are on disk when a function returns.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace trainsuite {

/// Creates `path` with these bytes, one part after the other. Throws Error naming the path and the
/// system's reason, also where something lies there already.
void write_new_file(const std::string& path,
                    const std::vector<std::pair<const void*, std::size_t>>& parts);

/// Makes names in `folder` durable. Throws Error naming it.
void sync_folder(const std::string& folder);

}  // namespace trainsuite
