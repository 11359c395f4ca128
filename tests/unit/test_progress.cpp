#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "run/progress.h"

namespace trainsuite {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A row of 2,000 tokens a step and 0.125 s.
CaseRecord ended(const std::string& recipe, const std::string& status) {
  CaseRecord record;
  record.name = "124m-" + recipe;
  record.status = status;
  record.settings = {{"recipe", recipe}, {"tokens_per_step", std::int64_t{2000}}};
  record.warmup = {1, 0};
  record.ranks = {{0, {{"step_seconds", "s", {9, 0.125}}}, {}}};
  return record;
}

TEST(RemainingSeconds, ScalesTheElapsedTime) {
  EXPECT_FALSE(remaining_seconds(0, 10, 5));
  EXPECT_DOUBLE_EQ(remaining_seconds(2, 10, 5).value(), 20);
  EXPECT_DOUBLE_EQ(remaining_seconds(10, 10, 5).value(), 0);
}

std::vector<Case> two_cases() {
  std::vector<Case> cases(2);
  for (Case& one : cases) one.size = "124m";
  cases[0].recipe = "plain";
  cases[1].recipe = "both";
  cases[0].work = 2;
  cases[1].work = 6;
  return cases;
}

TEST(Progress, OneLineACaseWhereThereIsNoTerminal) {
  double now = 100;
  std::ostringstream out;
  Progress progress(out, false, two_cases(), [&] { return now; });
  progress.begin_case();
  progress.phase("training");
  EXPECT_EQ(out.str(), "");
  now = 110;
  progress.end_case(ended("plain", "ok"));
  const std::string first = out.str();
  for (const char* part :
       {"[1/2] 124m-plain ok", "16,000 tokens/s", "125.00 ms", "10.0 s", "ETA 30 s"}) {
    EXPECT_TRUE(has(first, part)) << part << " is not in: " << first;
  }
  progress.begin_case();
  CaseRecord failed = ended("both", "timeout");
  failed.reason = "no answer of rank 1";
  progress.end_case(failed);
  const std::string second = out.str().substr(first.size());
  EXPECT_TRUE(has(second, "[2/2] 124m-both timeout: no answer of rank 1")) << second;
  EXPECT_FALSE(has(second, "ETA") || has(second, "tokens/s")) << second;
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 1);
  EXPECT_EQ(out.str().find('\r'), std::string::npos);
}

TEST(Progress, OneUpdatingLineOnATerminal) {
  double now = 0;
  std::ostringstream out;
  Progress progress(out, true, two_cases(), [&] { return now; });
  progress.begin_case();
  EXPECT_TRUE(has(out.str(), "[1/2] 124m-plain set-up")) << out.str();
  EXPECT_FALSE(has(out.str(), "ETA"));  // nothing is done yet
  now = 10;
  progress.end_case(ended("plain", "ok"));
  progress.begin_case();
  EXPECT_TRUE(has(out.str(), "[2/2] 124m-both set-up, ETA 30 s")) << out.str();
  progress.end_case(ended("both", "ok"));
  EXPECT_EQ(out.str().find('\n'), std::string::npos);
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K"));  // leaves a clear line for the summary
}

}  // namespace
}  // namespace trainsuite
