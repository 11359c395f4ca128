#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "result/steadiness.h"
#include "run/row_notes.h"

namespace trainsuite {
namespace {

TEST(Trend, IsTheilAndSensSlopeWithMannAndKendallsTest) {
  // 1..10 twice a value apart: all 45 pairs rise. S = 45, variance 10 x 9 x 25 / 18 = 125,
  // z = 44 / sqrt(125) = 3.93548, two-sided p = 8.304e-5 (table of the normal distribution).
  std::vector<double> rising(10);
  std::iota(rising.begin(), rising.end(), 1.0);
  const auto up = trend(rising);
  ASSERT_TRUE(up);
  EXPECT_NEAR(up->change, 9 / 5.5, 1e-12);
  EXPECT_NEAR(up->p_value, 8.304e-5, 2e-8);
  EXPECT_TRUE(up->found());
  rising[9] = 1000;  // an outlier moves neither
  EXPECT_NEAR(trend(rising)->change, 9 / 5.5, 1e-12);
  EXPECT_NEAR(trend(rising)->p_value, 8.304e-5, 2e-8);
  std::vector<double> falling(rising.rbegin(), rising.rend());
  EXPECT_LT(trend(falling)->change, 0);
}

TEST(Trend, TiesCountInTheVariance) {
  // 1 x5, 2 x5: S = 25, variance (10 x 9 x 25 - 2 x 5 x 4 x 15) / 18 = 91.667,
  // z = 24 / 9.5743 = 2.50671, p = 0.012186.
  const auto found = trend({1, 1, 1, 1, 1, 2, 2, 2, 2, 2});
  EXPECT_NEAR(found->p_value, 0.012186, 1e-6);
  EXPECT_FALSE(found->found());  // p is above 0.01
  const auto constant = trend(std::vector<double>(20, 3.0));
  EXPECT_EQ(constant->p_value, 1);
  EXPECT_EQ(constant->change, 0);
}

TEST(Trend, SmallOrFewIsNone) {
  EXPECT_FALSE(trend({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  std::vector<double> slight;
  for (int i = 0; i < 40; ++i) slight.push_back(1 + 0.005 * i / 39);
  EXPECT_LT(trend(slight)->p_value, 0.01);
  EXPECT_FALSE(trend(slight)->found());  // half a percent
}

TEST(Trend, OfManyStepsIsThatOfBlockMedians) {
  std::vector<double> many;
  for (int i = 0; i < 5000; ++i) many.push_back(100 + 0.01 * i);
  EXPECT_NEAR(trend(many)->change, 50.0 * 499 / 500 / 125, 1e-3);
}

TEST(Outliers, LieBeyondThreeInterquartileRanges) {
  // Quartiles of 1..9: 3 and 7, reach 12: below -9 or above 19.
  EXPECT_EQ(outliers({1, 2, 3, 4, 5, 6, 7, 8, 9}).slow, 0u);
  const auto found = outliers({1, 2, 3, 4, 5, 6, 7, 8, 19.1, 30, -9.1, 5, 5});
  // Sorted: -9.1 1 2 3 4 5 5 5 6 7 8 19.1 30: quartiles 3 and 7 again.
  EXPECT_EQ(found.slow, 2u);
  EXPECT_EQ(found.fast, 1u);
  EXPECT_EQ(found.of, 13u);
  EXPECT_DOUBLE_EQ(found.slow_fence, 19);
  EXPECT_EQ(outliers({}).of, 0u);
}

RankRecord rank(int number, std::vector<double> steps, std::vector<double> waits) {
  return {
      number,
      {{"step_seconds", "s", std::move(steps)}, {"exposed_sync_seconds", "s", std::move(waits)}},
      {}};
}

CaseRecord three_ranks() {
  CaseRecord record;
  record.status = "ok";
  record.warmup = {1, 0, 0, 0};
  record.ranks = {rank(0, {9, 1.0, 1.0, 1.1}, {9, 0.4, 0.4, 0.5}),
                  rank(1, {9, 1.0, 1.0, 1.1}, {9, 0.3, 0.3, 0.4}),
                  rank(3, {9, 1.0, 1.0, 1.1}, {0, 0.1, 0.1, 0.1})};
  return record;
}

TEST(Straggler, IsTheRankWithTheMostWorkOfItsOwn) {
  const auto paces = rank_paces(three_ranks());
  ASSERT_EQ(paces.size(), 3u);
  EXPECT_NEAR(paces[0].busy_seconds, 0.6, 1e-12);
  EXPECT_NEAR(paces[2].busy_seconds, 0.9, 1e-12);
  EXPECT_NEAR(paces[1].wait_seconds, 0.3, 1e-12);
  EXPECT_NEAR(paces[1].step_seconds, 1.0, 1e-12);
  const auto found = straggler(three_ranks());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_NEAR(found->imposed_seconds, 0.9 - 0.65, 1e-12);
}

TEST(Straggler, NeedsRanksThatWait) {
  auto record = three_ranks();
  record.ranks.resize(1);
  EXPECT_FALSE(straggler(record));
  record = three_ranks();
  for (auto& one : record.ranks) one.series.pop_back();  // nothing is communicated
  EXPECT_FALSE(straggler(record));
  EXPECT_EQ(rank_paces(record).size(), 3u);
  for (auto& one : record.ranks) one.series.clear();
  EXPECT_TRUE(rank_paces(record).empty());
}

bool says(const CaseRecord& record, const std::string& part) {
  for (const auto& note : row_notes(record)) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(RowNotes, SayWhatWasFound) {
  EXPECT_TRUE(says(three_ranks(), "wait 250.00 ms a step for rank 3"));
  CaseRecord record;
  record.status = "ok";
  std::vector<double> steps(20, 1.0);
  steps[7] = 5;
  record.ranks = {{0, {{"step_seconds", "s", steps}}, {}}};
  EXPECT_TRUE(says(record, "1 of 20 steps are outliers"));
  EXPECT_FALSE(says(record, "not steady"));
  for (std::size_t i = 0; i < steps.size(); ++i) steps[i] = 1 + 0.01 * static_cast<double>(i);
  record.ranks[0].series[0].values = steps;
  EXPECT_TRUE(says(record, "17.4% slower"));  // 0.19 of a median of 1.095
  record.results = {{"loop_energy_joules", 2000.0}, {"loop_steps", std::int64_t{20}}};
  record.settings = {{"tokens_per_step", std::int64_t{1000}}};
  EXPECT_TRUE(says(record, "100.0 J a step, 10.0 tokens a joule"));
  record.status = "failed";
  EXPECT_TRUE(row_notes(record).empty());
}

/// One rank, its two samples within the loop.
CaseRecord sampled(double mask, double others) {
  RankRecord rank;
  rank.facts = {{"telemetry_loop_begin_seconds", 0.0}, {"telemetry_loop_end_seconds", 9.0}};
  rank.telemetry = {{"sample_seconds", "s", {1, 2}},
                    {"throttle_reasons", "1", {mask, 0}},
                    {"other_processes", "1", {others, 0}}};
  CaseRecord record;
  record.status = "ok";
  record.ranks = {rank};
  return record;
}

TEST(RowNotes, APowerCapAloneIsToldAsUsual) {
  EXPECT_TRUE(says(sampled(0x4, 0), "at its power limit in 50% of the samples (power cap), as is"));
  EXPECT_FALSE(says(sampled(0x4, 0), "throttled"));
  EXPECT_TRUE(says(sampled(0x4 | 0x80, 0), "throttled in 50% of the samples: power cap, power br"));
  // Idle, clocks that were set, display clocks.
  EXPECT_TRUE(row_notes(sampled(0x1 | 0x2 | 0x100, 0)).empty());
  EXPECT_TRUE(says(sampled(0, 1), "up to 1 other process had a context on it"));
  EXPECT_TRUE(says(sampled(0, 2), "up to 2 other processes had contexts on it"));
}

}  // namespace
}  // namespace trainsuite
