#pragma once
// Whether the measured steps were steady: a trend, outliers, ranks that others wait for. Pure
// arithmetic; nothing is dropped, what is found is said.
#include <cstddef>
#include <optional>
#include <vector>

#include "result/record.h"

namespace trainsuite {

inline constexpr std::size_t fewest_for_trend = 10;
inline constexpr double trend_p = 0.01, trend_change = 0.01;

/// A trend by Mann and Kendall's test (normal approximation, ties corrected) with Theil and Sen's
/// slope, neither of which an outlier moves.
struct Trend {
  double change;   // slope x (values - 1) / median: from first to last, as a fraction
  double p_value;  // two-sided
  /// p below `trend_p` and a change of at least `trend_change` either way.
  bool found() const;
};
/// Absent below `fewest_for_trend` values. More than 500 values are taken as medians of 500 blocks.
std::optional<Trend> trend(std::vector<double> values);

/// Tukey's far-out values: beyond three interquartile ranges from the quartiles.
struct Outliers {
  std::size_t slow = 0, fast = 0, of = 0;
  double slow_fence = 0;  // values above are slow outliers
};
Outliers outliers(const std::vector<double>& values);

/// Per step the slowest rank's time over the measured steps, as summaries take it.
std::vector<double> measured_steps(const CaseRecord& record);

/// One rank beside the others. Times are medians over the measured steps, in seconds.
struct RankPace {
  int rank;
  double step_seconds;  // alike on all ranks that wait for one another
  double busy_seconds;  // step less exposed_sync_seconds: the rank's own work
  double wait_seconds;  // exposed_sync_seconds
};
/// Absent ranks have no times; empty where no rank has.
std::vector<RankPace> rank_paces(const CaseRecord& record);

struct Straggler {
  int rank;                // with the longest busy time
  double imposed_seconds;  // its busy time less the other ranks' mean: what they wait for it a step
};
/// Absent below two ranks that communicate.
std::optional<Straggler> straggler(const CaseRecord& record);

}  // namespace trainsuite
