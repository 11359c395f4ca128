#include "result/repeats.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "result/statistics.h"

namespace trainsuite {
namespace {

constexpr double tail = 0.025;  // on either side

std::pair<double, double> t_interval(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double value : values) logs.push_back(std::log(value));
  const auto count = static_cast<double>(logs.size());
  const double center = mean(logs);
  double squares = 0;
  for (const double log : logs) squares += (log - center) * (log - center);
  const boost::math::students_t distribution(count - 1);
  const double half =
      boost::math::quantile(distribution, 1 - tail) * std::sqrt(squares / (count - 1) / count);
  return {std::exp(center - half), std::exp(center + half)};
}

struct Outcome {
  double value, probability;
};

/// P(at least `needed` of `draws` draws lie among the `first` lowest of `draws` values).
double enough_below(std::size_t first, std::size_t needed, std::size_t draws) {
  if (first == draws) return 1;
  const auto n = static_cast<double>(draws);
  const boost::math::binomial distribution(n, static_cast<double>(first) / n);
  return boost::math::cdf(complement(distribution, static_cast<double>(needed) - 1));
}

/// All medians that a resample of n sorted values with replacement can have. Odd n: one of the
/// values. Even n: the mean of the two middle draws, of which the lower is value i and the upper
/// value j > i when exactly half of the draws are at most i (and one is i) and the others at least
/// j (and one is j).
std::vector<Outcome> resampled_medians(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size(), half = n / 2;
  const std::size_t needed = n % 2 == 1 ? half + 1 : half;  // draws up to the (lower) middle one
  const auto share = [&](std::size_t count) {
    return std::pow(static_cast<double>(count) / static_cast<double>(n), static_cast<double>(half));
  };
  const double splits = std::exp(std::lgamma(n + 1.0) - 2 * std::lgamma(half + 1.0));
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < n; ++i) {
    double both = enough_below(i + 1, needed, n) - (i == 0 ? 0 : enough_below(i, needed, n));
    for (std::size_t j = i + 1; n % 2 == 0 && j < n; ++j) {
      const double apart = splits * (share(i + 1) - share(i)) * (share(n - j) - share(n - j - 1));
      outcomes.push_back({(sorted[i] + sorted[j]) / 2, apart});
      both -= apart;
    }
    outcomes.push_back({sorted[i], both});
  }
  std::sort(outcomes.begin(), outcomes.end(),
            [](const Outcome& a, const Outcome& b) { return a.value < b.value; });
  return outcomes;
}

/// The smallest median below or at which at least `probability` of all resamples lie.
double value_at(const std::vector<Outcome>& outcomes, double probability) {
  double below = 0;
  for (const Outcome& outcome : outcomes) {
    below += outcome.probability;
    if (below >= probability - 1e-12) return outcome.value;
  }
  return outcomes.back().value;
}

}  // namespace

double Repeats::half_width() const {
  if (!low || !high) return std::numeric_limits<double>::infinity();
  return std::max(median - *low, *high - median) / median;
}

Repeats over_repeats(const std::vector<double>& values) {
  for (const double value : values) {
    if (!(value > 0) || !std::isfinite(value)) fail("a repeat's figure is {}", value);
  }
  Repeats repeats{values.size(), quantile(values, 0.5), {}, {}, "single run"};
  if (values.size() == 2) repeats.method = "2 runs: no interval";
  if (values.size() < fewest_for_t) return repeats;
  if (values.size() < fewest_for_bootstrap) {
    std::tie(repeats.low, repeats.high) = t_interval(values);
    repeats.method = "t on logarithms";
    return repeats;
  }
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  const auto medians = resampled_medians(sorted);
  repeats.low = value_at(medians, tail);
  repeats.high = value_at(medians, 1 - tail);
  repeats.method = "bootstrap of the median";
  return repeats;
}

}  // namespace trainsuite
