// The watchdog under mpirun: it frees a thread that is blocked, and lets ranks stop alike.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>

#include "core/error.h"
#include "launch/watchdog.h"
#include "mpi_session.h"

namespace {

using namespace trainsuite;

World* world = nullptr;

int last() { return world->size() - 1; }

/// A call within a library that looks at nothing: only `open` ends it.
class BlockingCall {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    freed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool open_ = false;
};

const Watchdog::GiveUp no_give_up = [](const std::string& late) {
  ADD_FAILURE() << "given up: " << late;
  return late;
};

TEST(Watchdog, APeersFailureFreesABlockedThread) {
  if (world->size() == 1) return;
  Watchdog watchdog(*world, {});
  for (int round = 0; round < 3; ++round) {
    world->begin_case();
    watchdog.begin_case(no_give_up);
    if (world->rank() == last()) {
      world->report_failure("out of memory");
    } else {
      BlockingCall call;
      const int number = world->on_failure([&] { call.open(); });
      call.wait();
      world->forget_release(number);
      try {
        world->check_peers();
        ADD_FAILURE() << "freed without a reason";
      } catch (const PeerFailed& error) {
        EXPECT_EQ(error.what(), fmt::format("rank {} failed: out of memory", last()));
      }
    }
    world->clear_failures();
    watchdog.end_case();
  }
  EXPECT_FALSE(watchdog.stop());
}

TEST(Watchdog, TheLimitFreesABlockedThreadAndTellsTheOthers) {
  Watchdog watchdog(*world, {});
  world->begin_case(0.2);
  world->enter("training", 5);
  watchdog.begin_case(no_give_up);
  BlockingCall call;
  const int number = world->on_failure([&] { call.open(); });
  call.wait();  // on every rank
  world->forget_release(number);
  EXPECT_THROW(world->check_peers(), Timeout);
  world->clear_failures();
  watchdog.end_case();
}

// Each begin_case() keeps a rank that is ahead from disturbing one that still looks.
TEST(Watchdog, NothingIsFreedWithoutAFailureOfTheCase) {
  std::atomic<bool> released = false;
  const int number = world->on_failure([&] { released = true; });
  world->begin_case();
  world->free_blocked();
  EXPECT_FALSE(released);
  world->begin_case();
  world->report_failure("bad data");
  world->free_blocked();
  EXPECT_TRUE(released);
  world->clear_failures();
  released = false;
  world->free_blocked();
  EXPECT_FALSE(released) << "the failure of an earlier case";
  world->begin_case();
  world->forget_release(number);
  world->report_failure("again");
  world->free_blocked();
  EXPECT_FALSE(released) << "forgotten";
  world->clear_failures();
}

/// Steps that every rank takes together, until the gate stops them.
std::string train_until_stopped(std::int64_t& steps) {
  try {
    for (steps = 0;; ++steps) {
      world->pass_gate(steps);
      world->agree(true);
    }
  } catch (const Stopped& error) {
    return error.what();
  }
}

/// One rank is asked to stop; all stop before the same step and rank 0 knows why.
void expect_all_stop(int asked) {
  std::atomic<int> signal = 0;
  WatchdogOptions options;
  options.signal = [&] { return signal.load(); };
  options.stop_seconds = 60;
  Watchdog watchdog(*world, options);
  world->begin_case(0, true);
  watchdog.begin_case(no_give_up);
  if (world->rank() == asked) signal = SIGTERM;
  std::int64_t steps = 0;
  const auto text = train_until_stopped(steps);
  EXPECT_EQ(text, fmt::format("stopped before step {}", steps));
  for (const auto& other : world->all_gather(text)) EXPECT_EQ(other, text);
  watchdog.end_case();
  if (!world->is_root()) return;
  ASSERT_TRUE(watchdog.stop());
  EXPECT_EQ(watchdog.stop()->exit_code, 128 + SIGTERM);
  EXPECT_EQ(watchdog.stop()->reason, "SIGTERM");
}

TEST(Watchdog, ASignalToOneRankStopsAllBeforeTheSameStep) {
  expect_all_stop(last());
  expect_all_stop(0);
}

TEST(Watchdog, ARankThatDoesNotTrainStopsNobody) {
  WatchdogOptions options;
  options.time_over = [] { return std::optional<Stop>({1, "--total-time-limit 1 s", true}); };
  options.stop_seconds = 60;
  Watchdog watchdog(*world, options);
  world->begin_case(0, world->is_root());
  watchdog.begin_case(no_give_up);
  if (world->is_root()) {
    try {
      for (std::int64_t step = 0;; ++step) world->pass_gate(step);
    } catch (const Stopped&) {
    }
  }
  world->agree(true);
  watchdog.end_case();
  if (world->is_root()) {
    EXPECT_EQ(watchdog.stop()->reason, "--total-time-limit 1 s");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return trainsuite::testing_mpi::run_all(
      argc, argv, [](World& session, const DeviceInfo&) { world = &session; }, [] {});
}
