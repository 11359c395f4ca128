#pragma once
// One figure of several repeats of a case: its median and how sure it is. Pure arithmetic.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace trainsuite {

inline constexpr std::size_t fewest_for_t = 3, fewest_for_bootstrap = 10;

/// The median of a positive figure over repeats with its 95% interval. Repeats count, not steps:
/// steps of one run are not independent.
struct Repeats {
  std::size_t count = 0;
  double median = 0;
  std::optional<double> low, high;  // absent below three repeats
  /// "single run", "2 runs: no interval", "t on logarithms" or "bootstrap of the median".
  std::string method;
  /// The farther end's distance from the median, as a fraction of it; infinite without interval.
  double half_width() const;
};

/// From 3 repeats Student's t on the logarithms (the interval of the geometric mean, which for
/// symmetric spread is the median), from 10 the percentile bootstrap of the median, exact: the
/// distribution over all n^n resamples, without random numbers. Throws Error without values or
/// with one that is not positive and finite.
Repeats over_repeats(const std::vector<double>& values);

}  // namespace trainsuite
