#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "result/statistics.h"

namespace trainsuite {
namespace {

const double unknown = std::nan("");

RankRecord rank_with(int rank, std::vector<double> step_seconds) {
  return {rank, {{"step_seconds", "s", std::move(step_seconds)}}, {}};
}

CaseRecord row_of(std::vector<std::uint8_t> warmup, std::vector<RankRecord> ranks) {
  CaseRecord record;
  record.warmup = std::move(warmup);
  record.ranks = std::move(ranks);
  return record;
}

TEST(Quantile, InterpolatesLinearly) {
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile({10, 20, 30, 40, 50}, 0.1), 14);
  EXPECT_DOUBLE_EQ(quantile({10, 20, 30, 40, 50}, 0.9), 46);
  EXPECT_DOUBLE_EQ(quantile({7, 5, 9}, 0), 5);
  EXPECT_DOUBLE_EQ(quantile({7, 5, 9}, 1), 9);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.3), 7);
}

TEST(Quantile, RefusesWhatHasNoAnswer) {
  EXPECT_THROW(quantile({}, 0.5), Error);
  EXPECT_THROW(quantile({1, unknown}, 0.5), Error);
  EXPECT_THROW(quantile({1, 2}, 1.5), Error);
  EXPECT_THROW(quantile({1, 2}, -0.1), Error);
  EXPECT_THROW(quantile({1, 2}, unknown), Error);
}

TEST(Mean, OfValues) {
  EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3);
  EXPECT_THROW(mean({}), Error);
}

TEST(Summary, TakesTheSlowestRankOfEachStepAndDropsWarmup) {
  const CaseRecord record =
      row_of({1, 0, 0, 0}, {rank_with(0, {90, 1, 5, 1}), rank_with(3, {80, 2, 2, 3})});
  const auto summary = summarize_steps(record);
  ASSERT_TRUE(summary);
  EXPECT_DOUBLE_EQ(summary->median_seconds, 3);  // of 2, 5, 3
  EXPECT_DOUBLE_EQ(summary->p10_seconds, 2.2);
  EXPECT_DOUBLE_EQ(summary->p90_seconds, 4.6);
  EXPECT_DOUBLE_EQ(summary->mean_seconds, 10.0 / 3);
  EXPECT_EQ(summary->slowest_rank, 3);  // medians 1 and 2
}

TEST(Summary, PassesOverUnknownTimes) {
  const auto summary =
      summarize_steps(row_of({}, {rank_with(0, {unknown, 4, unknown}), rank_with(1, {2, 3})}));
  ASSERT_TRUE(summary);
  EXPECT_DOUBLE_EQ(summary->mean_seconds, 3);  // of 2 and 4; nobody knows the third step
  EXPECT_EQ(summary->slowest_rank, 0);
}

TEST(Summary, AbsentWithoutMeasuredSteps) {
  EXPECT_FALSE(summarize_steps(row_of({}, {})));
  EXPECT_FALSE(summarize_steps(row_of({1, 1}, {rank_with(0, {1, 2})})));
  EXPECT_FALSE(summarize_steps(row_of({0}, {rank_with(0, {unknown})})));
  EXPECT_FALSE(summarize_steps(row_of({0}, {{0, {{"loss", "1", {1}}}, {}}})));
}

TEST(TokensPerSecond, IsTokensOverTheMedianStep) {
  CaseRecord record =
      row_of({1, 0, 0, 0}, {rank_with(0, {9, 2, 4, 1}), rank_with(1, {9, 4, 4, 10})});
  EXPECT_FALSE(tokens_per_second(record));  // tokens unknown
  record.settings = {{"tokens_per_step", std::int64_t{7}}, {"tokens_per_step", std::int64_t{64}}};
  EXPECT_DOUBLE_EQ(tokens_per_second(record).value(), 16);  // the later value counts
}

TEST(TokensPerSecond, OfIndependentRanksIsTheSumOfTheirOwnRates) {
  CaseRecord record = row_of({1, 0, 0}, {rank_with(0, {9, 2, 2}), rank_with(1, {9, 4, 4})});
  record.settings = {{"tokens_per_step", std::int64_t{64}}, {"recipe", std::string("independent")}};
  EXPECT_DOUBLE_EQ(tokens_per_second(record).value(), 32.0 / 2 + 32.0 / 4);
  record.ranks[0].series.push_back({"tokens", "token", {100, 10, 10}});
  EXPECT_DOUBLE_EQ(tokens_per_second(record).value(), 10.0 / 2 + 32.0 / 4);
  record.ranks[1].series.clear();
  EXPECT_FALSE(tokens_per_second(record));
}

TEST(FlopsPerToken, CountsMatmulsAndAttention) {
  EXPECT_DOUBLE_EQ(flops_per_token(100, 2, 8, 16, false), 600 + 12 * 2 * 8 * 16);
  EXPECT_DOUBLE_EQ(flops_per_token(100, 2, 8, 16, true), 600 + 6 * 2 * 8 * 16);
}

TEST(FindSeries, ByName) {
  const RankRecord rank{0, {{"loss", "1", {2}}, {"tokens", "token", {5}}}, {}};
  ASSERT_NE(find_series(rank, "tokens"), nullptr);
  EXPECT_EQ(find_series(rank, "tokens")->unit, "token");
  EXPECT_EQ(find_series(rank, "token"), nullptr);
}

}  // namespace
}  // namespace trainsuite
