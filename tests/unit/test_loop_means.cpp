// Rows of --instrumentation off: no step is timed by itself, only the whole loop.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run/row_figures.h"
#include "run/speed_up.h"
#include "run/summary.h"

namespace trainsuite {
namespace {

/// A row whose rank r took `seconds[r]` for a loop of 5 steps; 1,000 tokens a rank and step.
CaseRecord untimed(const std::string& recipe, const std::vector<double>& seconds) {
  CaseRecord record;
  record.name = "124m-" + recipe;
  record.status = "ok";
  record.settings = {{"size", std::string("124m")}, {"recipe", recipe}};
  record.settings.push_back(
      {"tokens_per_step", std::int64_t{1000} * static_cast<std::int64_t>(seconds.size())});
  record.warmup = {1, 1, 0, 0, 0, 0};
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    record.ranks.push_back({static_cast<int>(rank),
                            {},
                            {{"loop_seconds", seconds[rank]}, {"loop_steps", std::int64_t{5}}}});
  }
  return record;
}

/// The same with its steps timed, 0.1 s each.
CaseRecord timed(CaseRecord record) {
  for (RankRecord& rank : record.ranks) {
    rank.series = {{"step_seconds", "s", {9, .1, .1, .1, .1, .1}}};
  }
  return record;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LoopMeans, AreOfTheSlowestRank) {
  const auto figures = row_figures(untimed("plain", {0.5, 1.0}), {});
  EXPECT_TRUE(figures.of_loop);
  EXPECT_NEAR(figures.step_seconds.value(), 0.2, 1e-12);
  EXPECT_NEAR(figures.tokens_per_second.value(), 10'000, 1e-8);
  EXPECT_FALSE(figures.tokens_per_second_p10 || figures.tokens_per_second_p90);
  EXPECT_NEAR(row_figures(untimed("plain", {1.0, 0.5}), {}).step_seconds.value(), 0.2, 1e-12);
}

TEST(LoopMeans, OfIndependentRanksSumOwnRates) {
  const auto figures = row_figures(untimed("independent", {0.5, 1.0}), {});
  EXPECT_NEAR(figures.tokens_per_second.value(), 1000 / 0.1 + 1000 / 0.2, 1e-8);
}

TEST(LoopMeans, GiveWayToTimesOfSteps) {
  const auto figures = row_figures(timed(untimed("plain", {5, 9})), {});
  EXPECT_FALSE(figures.of_loop);
  EXPECT_NEAR(figures.step_seconds.value(), 0.1, 1e-12);
  EXPECT_NEAR(figures.tokens_per_second.value(), 20'000, 1e-8);
}

TEST(LoopMeans, AreAbsentWhereTheLoopIsNotKnown) {
  auto record = untimed("plain", {0.5, 1.0});
  record.ranks[1].facts.pop_back();
  EXPECT_FALSE(row_figures(record, {}).tokens_per_second);
  record.ranks[1].facts.push_back({"loop_steps", std::int64_t{0}});  // there was one step only
  EXPECT_FALSE(row_figures(record, {}).step_seconds);
}

TEST(LoopMeans, MakeSpeedUps) {
  const auto all = speed_ups({untimed("1gpu", {0.5}), untimed("plain", {0.5, 0.8})});
  EXPECT_NEAR(all[1].over_own.value(), 12'500.0 / 10'000, 1e-12);
}

TEST(LoopMeans, AreSaidToBeUnderTheTable) {
  std::vector<CaseRecord> records = {untimed("1gpu", {0.5})};
  const std::string all = summary_text(records, {});
  EXPECT_TRUE(has(all, "10,000   100.00") || has(all, "10,000  100.00")) << all;
  EXPECT_TRUE(has(all, "(--instrumentation off): all rows.")) << all;
  EXPECT_FALSE(has(all, "median")) << all;
  records.push_back(timed(untimed("plain", {1, 1})));
  const std::string mixed = summary_text(records, {});
  EXPECT_TRUE(has(mixed, "(--instrumentation off): 124m-1gpu.")) << mixed;
  EXPECT_TRUE(has(mixed, "median [p10..p90]")) << mixed;
  records.erase(records.begin());
  EXPECT_FALSE(has(summary_text(records, {}), "eans of the loop"));
}

TEST(LoopMeans, AreMarkedInJson) {
  const auto all = nlohmann::json::parse(
      summary_json({untimed("1gpu", {0.5}), timed(untimed("plain", {1, 1}))}, {}));
  EXPECT_EQ(all.at("cases").at(0).at("means_of_loop"), true);
  EXPECT_NEAR(all.at("cases").at(0).at("step_seconds").get<double>(), 0.1, 1e-12);
  EXPECT_FALSE(all.at("cases").at(1).contains("means_of_loop"));
}

}  // namespace
}  // namespace trainsuite
