#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run/self_check.h"

namespace trainsuite {
namespace {

CaseRecord row(const std::string& name, std::int64_t repeat, double loop_seconds) {
  CaseRecord record;
  record.name = name;
  record.repeat = repeat;
  record.status = "ok";
  const auto rank = [&](int number, double seconds) {
    return RankRecord{number, {}, {{"loop_seconds", seconds}, {"loop_steps", std::int64_t{10}}}};
  };
  record.ranks = {rank(0, loop_seconds / 2), rank(1, loop_seconds)};  // the slower one counts
  return record;
}

TEST(SelfCheck, EachCaseGetsATwinThatIsOnlyTimed) {
  Case one;
  one.size = "124m";
  one.recipe = "1gpu";
  const auto cases = self_check_cases({one});
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].name(), "124m-1gpu");
  EXPECT_TRUE(cases[0].instrumented);
  EXPECT_EQ(cases[1].name(), "124m-1gpu-bare");
  EXPECT_FALSE(cases[1].instrumented);
}

TEST(SelfCheck, TheShareIsTheMedianOfTheRoundsRatios) {
  // The machine is slower in round 1 and 2; within a round measuring costs 1%, 2% and 0.5%.
  const std::vector<CaseRecord> rows = {row("a", 0, 1.01),  row("a-bare", 0, 1),
                                        row("a", 1, 2.04),  row("a-bare", 1, 2),
                                        row("a", 2, 3.015), row("a-bare", 2, 3)};
  const auto checks = self_checks(rows);
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].name, "a");
  EXPECT_NEAR(checks[0].share(), 0.01, 1e-12);
  EXPECT_EQ(checks[0].ratio.count, 3u);
  EXPECT_NE(self_check_text(rows).find("a: measuring costs 1.00% of the loop ["),
            std::string::npos);
  EXPECT_NEAR(self_check_json(rows).at(0).at("share").get<double>(), 0.01, 1e-12);
}

TEST(SelfCheck, ARoundWithoutItsTwinIsLeftOut) {
  std::vector<CaseRecord> rows = {row("a", 0, 1.5), row("a-bare", 0, 1), row("a", 1, 1.5),
                                  row("a-bare", 1, 1)};
  rows[3].status = "failed";
  EXPECT_EQ(self_checks(rows)[0].ratio.count, 1u);
  rows.resize(1);
  EXPECT_TRUE(self_checks(rows).empty());
  EXPECT_TRUE(self_check_text(rows).empty());
}

}  // namespace
}  // namespace trainsuite
