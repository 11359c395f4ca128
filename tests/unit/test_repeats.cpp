#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "result/repeats.h"

namespace trainsuite {
namespace {

TEST(Repeats, OneOrTwoRunsHaveNoInterval) {
  const auto one = over_repeats({5});
  EXPECT_EQ(one.method, "single run");
  EXPECT_DOUBLE_EQ(one.median, 5);
  EXPECT_FALSE(one.low || one.high);
  EXPECT_TRUE(std::isinf(one.half_width()));
  const auto two = over_repeats({6, 4});
  EXPECT_DOUBLE_EQ(two.median, 5);
  EXPECT_FALSE(two.low || two.high);
  EXPECT_NE(two.method, "single run");
}

TEST(Repeats, FromThreeStudentsTOnLogarithms) {
  // By hand: logs 1, 2, 3 have mean 2, standard deviation 1; t of a table, 2 degrees: 4.302653.
  const auto three = over_repeats({std::exp(3.0), std::exp(1.0), std::exp(2.0)});
  EXPECT_NEAR(std::log(three.median), 2, 1e-12);
  EXPECT_NEAR(std::log(three.low.value()), 2 - 4.302653 / std::sqrt(3.0), 1e-6);
  EXPECT_NEAR(std::log(three.high.value()), 2 + 4.302653 / std::sqrt(3.0), 1e-6);
  EXPECT_EQ(three.method, "t on logarithms");
  // 9 runs, 8 degrees of freedom: 2.306004. Logs 0 (x8) and 9: mean 1, deviation 3.
  const auto nine = over_repeats({1, 1, 1, 1, std::exp(9.0), 1, 1, 1, 1});
  EXPECT_NEAR(std::log(nine.high.value()), 1 + 2.306004, 1e-6);
  EXPECT_DOUBLE_EQ(nine.median, 1);  // the mean would be 901
}

TEST(Repeats, HalfWidthIsTheFartherEnd) {
  EXPECT_DOUBLE_EQ((Repeats{3, 100, 98, 103, ""}.half_width()), 0.03);
  EXPECT_DOUBLE_EQ((Repeats{3, 100, 95, 103, ""}.half_width()), 0.05);
}

/// The bootstrap's definition: every one of the n^n resamples, by counting how often each value is
/// drawn (multinomial weights). Slow, and written without the shortcuts of the code under test.
std::map<double, double> all_resampled_medians(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  std::map<double, double> weights;
  std::vector<std::size_t> counts(n, 0);
  const double total = std::lgamma(static_cast<double>(n) + 1) -
                       static_cast<double>(n) * std::log(static_cast<double>(n));
  const auto visit = [&](const auto& self, std::size_t index, std::size_t left,
                         double log_weight) -> void {
    if (index + 1 == n) {
      counts[index] = left;
      std::vector<double> drawn;
      for (std::size_t i = 0; i < n; ++i) drawn.insert(drawn.end(), counts[i], sorted[i]);
      const double median = n % 2 == 1 ? drawn[n / 2] : (drawn[n / 2 - 1] + drawn[n / 2]) / 2;
      weights[median] += std::exp(log_weight - std::lgamma(static_cast<double>(left) + 1));
      return;
    }
    for (std::size_t count = 0; count <= left; ++count) {
      counts[index] = count;
      self(self, index + 1, left - count, log_weight - std::lgamma(static_cast<double>(count) + 1));
    }
  };
  visit(visit, 0, n, total);
  return weights;
}

void expect_percentiles(const std::vector<double>& values) {
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto weights = all_resampled_medians(sorted);
  const auto at = [&](double probability) {
    double below = 0;
    for (const auto& [value, weight] : weights) {
      below += weight;
      if (below >= probability - 1e-9) return value;
    }
    return weights.rbegin()->first;
  };
  const auto repeats = over_repeats(values);
  EXPECT_DOUBLE_EQ(repeats.low.value(), at(0.025));
  EXPECT_DOUBLE_EQ(repeats.high.value(), at(0.975));
  EXPECT_EQ(repeats.method, "bootstrap of the median");
}

TEST(Repeats, FromTenTheExactBootstrapOfTheMedian) {
  expect_percentiles({12, 1, 2, 30, 4, 50, 6.5, 7, 8, 9});
  expect_percentiles({12, 1, 2, 30, 4, 50, 6.5, 7, 8, 9, 11});
  expect_percentiles({1, 1, 1, 1, 1, 1, 1, 5, 5, 5});  // ties
}

TEST(Repeats, RefusesWhatIsNoRate) {
  EXPECT_THROW(over_repeats({}), Error);
  EXPECT_THROW(over_repeats({1, 0, 2}), Error);
  EXPECT_THROW(over_repeats({1, -1}), Error);
  EXPECT_THROW(over_repeats({1, std::nan("")}), Error);
  EXPECT_THROW(over_repeats({1, HUGE_VAL}), Error);
}

}  // namespace
}  // namespace trainsuite
