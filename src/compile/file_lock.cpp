#include "compile/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace trainsuite {

FileLock::FileLock(const std::filesystem::path& file, double limit_seconds,
                   const std::function<void()>& watch) {
  handle_ = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (handle_ < 0) {
    reason_ = fmt::format("cannot open {}: {}", file.string(), std::strerror(errno));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(limit_seconds);
  while (true) {
    if (flock(handle_, LOCK_EX | LOCK_NB) == 0) {
      held_ = true;
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) {
      reason_ = fmt::format("cannot lock {}: {}", file.string(), std::strerror(errno));
      return;
    }
    if (std::chrono::steady_clock::now() - start > limit) {
      reason_ = fmt::format("{} was locked for {:.0f} s", file.string(), limit_seconds);
      return;
    }
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

FileLock::~FileLock() {
  if (handle_ >= 0) close(handle_);  // which unlocks
}

}  // namespace trainsuite
