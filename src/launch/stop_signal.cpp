#include "launch/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>

namespace trainsuite {
namespace {

// What a handler may touch.
std::atomic<int> first_signal = 0;
std::atomic<std::time_t> first_second = 0;
static_assert(std::atomic<std::time_t>::is_always_lock_free);

void note(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  int none = 0;
  if (first_signal.compare_exchange_strong(none, number)) {
    first_second = now.tv_sec;
  } else if (number == SIGINT && now.tv_sec > first_second + 1) {
    _exit(128 + SIGINT);
  }
}

}  // namespace

void note_stop_signals() {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

int stop_signal() { return first_signal; }

}  // namespace trainsuite
