#include "compile/remove_tree.h"

#include <ftw.h>

#include <cstdio>

namespace trainsuite {

// std::filesystem::remove_all crashes here: libtorch exports parts of an older libstdc++'s.
void remove_tree(const std::filesystem::path& folder) noexcept {
  const auto remove_one = [](const char* path, const struct stat*, int, struct FTW*) {
    std::remove(path);
    return 0;
  };
  constexpr int open_folders = 16;
  nftw(folder.c_str(), remove_one, open_folders, FTW_DEPTH | FTW_PHYS);
}

}  // namespace trainsuite
