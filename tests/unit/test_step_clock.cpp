// The step clock on the host's clock: what it adds up to, and what it refuses.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "core/error.h"
#include "device/step_clock.h"

namespace {

using namespace trainsuite;
using Clock = std::chrono::steady_clock;

void work(double seconds) {
  const auto start = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
  }
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(StepClock, StepsAddUpToTheWallClock) {
  const auto clock = make_step_clock(false, 5, 3, true);
  const auto start = Clock::now();
  for (int step = 0; step < 5; ++step) {
    clock->begin_step();
    work(1e-3);
    clock->mark(Phase::data);
    work(2e-3);
    clock->mark(Phase::forward);
    work(1e-3);  // a gap: part of the step, of no phase
  }
  clock->end_loop();
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const auto times = clock->read();
  ASSERT_EQ(times.step_seconds.size(), 5U);
  EXPECT_NEAR(sum(times.step_seconds), wall, 0.02 * wall);
  EXPECT_EQ(times.step_seconds, times.host_seconds);
  for (size_t step = 0; step < 5; ++step) {
    const double data = times.phase_seconds[0][step], forward = times.phase_seconds[1][step];
    EXPECT_GE(data, 1e-3);
    EXPECT_GE(forward, 2e-3);
    EXPECT_GE(times.step_seconds[step], data + forward + 1e-3);
    EXPECT_EQ(times.phase_seconds[2][step], 0.0);
  }
}

TEST(StepClock, PhasesAreSummedOverMicroBatches) {
  const auto clock = make_step_clock(false, 1, 4, true);
  clock->begin_step();
  for (int micro = 0; micro < 2; ++micro) {
    work(1e-3);
    clock->mark(Phase::forward);
    work(2e-3);
    clock->mark(Phase::backward);
  }
  clock->end_loop();
  const auto times = clock->read();
  EXPECT_GE(times.phase_seconds[1][0], 2e-3);
  EXPECT_GE(times.phase_seconds[2][0], 4e-3);
  EXPECT_LE(times.phase_seconds[1][0] + times.phase_seconds[2][0], times.step_seconds[0]);
}

TEST(StepClock, RefusesAMissingStep) {
  const auto clock = make_step_clock(false, 2, 1, true);
  clock->begin_step();
  clock->end_loop();
  EXPECT_THROW(clock->read(), Error);
}

TEST(StepClock, NamesWhatIsBeingIssued) {
  const auto clock = make_step_clock(false, 1, 5, true);
  clock->begin_step();
  EXPECT_STREQ(clock->issuing(), "data");
  clock->mark(Phase::data);
  EXPECT_STREQ(clock->issuing(), "forward");
  clock->mark(Phase::forward);
  EXPECT_STREQ(clock->issuing(), "backward");
  clock->mark(Phase::backward);
  EXPECT_STREQ(clock->issuing(), "gradient sync");
  clock->mark(Phase::exposed_sync);
  EXPECT_STREQ(clock->issuing(), "optimizer");
}

TEST(StepClock, OffRecordsNothing) {
  const auto clock = make_step_clock(false, 3, 5, false);
  clock->begin_step();
  clock->mark(Phase::data);
  clock->end_loop();
  EXPECT_TRUE(clock->read().step_seconds.empty());
}

}  // namespace
