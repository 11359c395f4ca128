// Ranks that are asked to stop at any moment all make the same steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "launch/stop_gate.h"

namespace {

using namespace trainsuite;

constexpr std::int64_t epoch = 7;

void spin(const std::function<bool()>& decided) {
  while (!decided()) std::this_thread::yield();
}

TEST(StopGate, LetsAllStepsPassWhenNobodyStops) {
  StopGate gate;
  gate.begin_case(epoch, true);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(gate.stops_before(i, spin));
}

TEST(StopGate, TellsTheFirstStepThatIsNotBegun) {
  StopGate gate;
  gate.begin_case(epoch, true);
  EXPECT_EQ(gate.freeze().next, 0);
  gate.begin_case(epoch, true);
  gate.stops_before(0, spin);
  gate.stops_before(1, spin);
  EXPECT_EQ(gate.freeze().next, 2);
  EXPECT_EQ(gate.freeze().epoch, epoch);
  gate.begin_case(epoch + 1, false);
  EXPECT_EQ(gate.freeze().next, StopGate::not_in_it);
}

TEST(StopGate, ARankThatIsBehindGoesOnToTheAgreedStep) {
  StopGate gate;
  gate.begin_case(epoch, true);
  gate.freeze();
  gate.decide(epoch, 2);
  EXPECT_FALSE(gate.stops_before(0, spin));
  EXPECT_FALSE(gate.stops_before(1, spin));
  EXPECT_TRUE(gate.stops_before(2, spin));
}

TEST(StopGate, IgnoresTheWordOfAnotherCase) {
  StopGate gate;
  gate.begin_case(epoch, true);
  gate.freeze();
  gate.decide(epoch - 1, 0);
  int asked = 0;
  const auto wait = [&](const std::function<bool()>& decided) {
    EXPECT_FALSE(decided());
    ++asked;
    gate.decide(epoch, 0);
  };
  EXPECT_TRUE(gate.stops_before(0, wait));
  EXPECT_EQ(asked, 1);
}

/// One rank: trains until its gate stops it; each step needs all ranks, as an all-reduce does.
struct Rank {
  StopGate gate;
  std::atomic<std::int64_t> begun = 0;  // steps
};

TEST(StopGate, RanksStopBeforeTheSameStepWheneverTheyAreAsked) {
  constexpr int ranks = 3, rounds = 30;
  std::mt19937 chance(20260102);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Rank> all(ranks);
    for (Rank& rank : all) rank.gate.begin_case(epoch, true);
    std::vector<std::int64_t> stopped(ranks, -1);
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        for (std::int64_t step = 0;; ++step) {
          if (all[r].gate.stops_before(step, spin)) {
            stopped[r] = step;
            return;
          }
          all[r].begun = step + 1;
          for (Rank& other : all) {  // the step ends when all have begun it
            while (other.begun <= step) std::this_thread::yield();
          }
        }
      });
    }
    const auto after = std::uniform_int_distribution<std::int64_t>(0, 40)(chance);
    while (all[0].begun < after) std::this_thread::yield();
    std::int64_t last = 0;
    for (Rank& rank : all) last = std::max(last, rank.gate.freeze().next);
    for (Rank& rank : all) rank.gate.decide(epoch, last);
    for (std::thread& thread : threads) thread.join();
    for (const auto step : stopped) EXPECT_EQ(step, last);
  }
}

}  // namespace
