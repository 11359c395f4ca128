#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "run/order.h"
#include "run/summary_repeats.h"

namespace trainsuite {
namespace {

using Order = std::vector<std::size_t>;

Options flags(std::int64_t repeats, const std::string& order) {
  Options options;
  options.repeats = repeats;
  options.order = order;
  return options;
}

TEST(Order, IsShuffledOnceThereAreRounds) {
  EXPECT_FALSE(order_options(flags(1, "auto")).shuffled);
  EXPECT_TRUE(order_options(flags(2, "auto")).shuffled);
  EXPECT_FALSE(order_options(flags(2, "plan")).shuffled);
  EXPECT_TRUE(order_options(flags(1, "shuffled")).shuffled);
}

TEST(Order, UntilRunsAtMostAsOftenAsRepeatsSays) {
  auto options = flags(1, "auto");
  options.until_percent = 2;
  EXPECT_EQ(order_options(options).repeats, 100);
  EXPECT_TRUE(order_options(options).shuffled);
  options.repeats = 7;
  EXPECT_EQ(order_options(options).repeats, 7);
}

TEST(Order, EachRoundHoldsEachCaseOnce) {
  const auto all = turns(5, {.repeats = 3, .shuffled = true, .seed = 9});
  ASSERT_EQ(all.size(), 15u);
  for (std::size_t round = 0; round < 3; ++round) {
    std::set<std::size_t> seen;
    for (std::size_t i = 0; i < 5; ++i) {
      const Turn& turn = all[5 * round + i];
      EXPECT_EQ(turn.repeat, static_cast<std::int64_t>(round));
      EXPECT_EQ(turn.position, static_cast<std::int64_t>(5 * round + i));
      seen.insert(turn.case_index);
    }
    EXPECT_EQ(seen, (std::set<std::size_t>{0, 1, 2, 3, 4}));
  }
}

TEST(Order, RoundsAndSeedsDifferAndArgumentsAloneDecide) {
  const OrderOptions one{.repeats = 1, .shuffled = true, .seed = 1};
  OrderOptions other = one;
  other.seed = 2;
  EXPECT_EQ(round_order(20, 0, one), round_order(20, 0, one));
  EXPECT_NE(round_order(20, 0, one), round_order(20, 1, one));
  EXPECT_NE(round_order(20, 0, one), round_order(20, 0, other));
  other.shuffled = false;
  EXPECT_EQ(round_order(4, 3, other), (Order{0, 1, 2, 3}));
}

TEST(Order, EveryPermutationIsAboutAsLikely) {
  // 6 permutations of 3 over 6,000 rounds: 1,000 each; the seed is fixed, so is the count.
  std::map<Order, int> counts;
  for (int round = 0; round < 6000; ++round) {
    ++counts[round_order(3, round, {.repeats = 1, .shuffled = true, .seed = 1})];
  }
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 120);
}

CaseRecord row(const std::string& recipe, std::int64_t repeat, double step_seconds) {
  CaseRecord record;
  record.suite = "ddp";
  record.name = "124m-" + recipe;
  record.repeat = repeat;
  record.status = "ok";
  record.settings = {
      {"size", std::string("124m")}, {"recipe", recipe}, {"tokens_per_step", std::int64_t{1000}}};
  record.warmup = {1, 0};
  record.ranks = {{0, {{"step_seconds", "s", {9, step_seconds}}}, {}}};
  return record;
}

TEST(Until, NeedsAnIntervalOfEveryCase) {
  std::vector<CaseRecord> rows = {row("1gpu", 0, 1), row("1gpu", 1, 1.001), row("plain", 0, 1),
                                  row("plain", 1, 1.001)};
  EXPECT_FALSE(narrow_enough(rows, 50));  // two repeats give none
  rows.push_back(row("1gpu", 2, 1.002));
  EXPECT_FALSE(narrow_enough(rows, 50));  // plain has only two
  rows.push_back(row("plain", 2, 1.002));
  EXPECT_TRUE(narrow_enough(rows, 0.5));
  EXPECT_FALSE(narrow_enough(rows, 0.1));  // half width 4.30 x 0.001 / sqrt(3) = 0.25%
  rows.push_back(row("both", 0, 1));
  rows.back().status = "failed";  // a case that cannot be measured does not hold the others up
  EXPECT_TRUE(narrow_enough(rows, 0.5));
}

TEST(Order, RowsComeBackAsPlanned) {
  Case first, second;
  first.size = second.size = "124m";
  first.recipe = "1gpu";
  second.recipe = "plain";
  std::vector<CaseRecord> rows = {row("plain", 0, 1), row("1gpu", 0, 1), row("1gpu", 1, 1),
                                  row("plain", 1, 1)};
  sort_as_planned(rows, {first, second});
  std::string names;
  for (const auto& one : rows) names += one.name + " " + std::to_string(one.repeat) + ";";
  EXPECT_EQ(names, "124m-1gpu 0;124m-1gpu 1;124m-plain 0;124m-plain 1;");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RepeatsSummary, FormsRatiosWithinARound) {
  // The machine is twice as slow in round 1: the ratio of each round is 1.25, the rates are not.
  const std::vector<CaseRecord> rows = {row("1gpu", 0, 1),   row("plain", 0, 0.8),
                                        row("1gpu", 1, 2),   row("plain", 1, 1.6),
                                        row("1gpu", 2, 1.5), row("plain", 2, 1.2)};
  const auto cases = case_repeats(rows, {});
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[1].name, "124m-plain");
  EXPECT_EQ(cases[1].ok, 3u);
  EXPECT_NEAR(cases[1].over_1gpu->median, 1.25, 1e-12);
  EXPECT_NEAR(cases[1].over_1gpu->low.value(), 1.25, 1e-12);
  EXPECT_NEAR(cases[1].tokens_per_second->median, 1000 / 1.2, 1e-9);
  EXPECT_GT(cases[1].tokens_per_second->half_width(), 0.5);
  const auto json = repeats_json(rows, {});
  EXPECT_NEAR(json.at(1).at("step_seconds").at("median").get<double>(), 1.2, 1e-12);
}

TEST(RepeatsSummary, SaysSingleRunAndCountsFailures) {
  EXPECT_TRUE(has(repeats_text({row("1gpu", 0, 1)}, {}), "single run"));
  std::vector<CaseRecord> rows = {row("1gpu", 0, 1), row("1gpu", 1, 1), row("1gpu", 2, 1)};
  rows[1].status = "oom";
  const auto text = repeats_text(rows, {});
  EXPECT_TRUE(has(text, "2 of 3")) << text;
  EXPECT_FALSE(has(text, "single run")) << text;
  for (auto& one : rows) one.status = "failed";
  EXPECT_TRUE(repeats_text(rows, {}).empty());
}

}  // namespace
}  // namespace trainsuite
