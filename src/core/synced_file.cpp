#include "core/synced_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/error.h"

namespace trainsuite {

void write_new_file(const std::string& path,
                    const std::vector<std::pair<const void*, std::size_t>>& parts) {
  FILE* const file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) fail("{}: {}", path, std::strerror(errno));
  bool written = true;
  for (const auto& [data, size] : parts) {
    written = written && std::fwrite(data, 1, size, file) == size;
  }
  written = written && std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const int reason = errno;
  if (std::fclose(file) != 0 || !written) fail("{}: {}", path, std::strerror(reason));
}

void sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder without read permission cannot be synced by anyone
  const int code = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (code == 0 || code == EINVAL || code == EROFS) return;  // some file systems sync no folders
  fail("cannot sync the folder {}: {}", folder, std::strerror(code));
}

}  // namespace trainsuite
