#pragma once
#include <filesystem>

namespace trainsuite {

/// Removes a folder and what is in it, as far as that is possible; nothing where it is not there.
void remove_tree(const std::filesystem::path& folder) noexcept;

}  // namespace trainsuite
