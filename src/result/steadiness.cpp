#include "result/steadiness.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "result/statistics.h"

namespace trainsuite {
namespace {

constexpr std::size_t most_values = 500;  // the slopes are of all pairs

std::vector<double> block_medians(const std::vector<double>& values) {
  if (values.size() <= most_values) return values;
  std::vector<double> medians;
  for (std::size_t block = 0; block < most_values; ++block) {
    const auto from = static_cast<std::ptrdiff_t>(block * values.size() / most_values);
    const auto to = static_cast<std::ptrdiff_t>((block + 1) * values.size() / most_values);
    medians.push_back(quantile({values.begin() + from, values.begin() + to}, 0.5));
  }
  return medians;
}

/// Variance of Kendall's S without a trend.
double variance_of_score(const std::vector<double>& values) {
  const auto term = [](double n) { return n * (n - 1) * (2 * n + 5) / 18; };
  std::map<double, double> ties;
  for (const double value : values) ++ties[value];
  double variance = term(static_cast<double>(values.size()));
  for (const auto& [value, count] : ties) variance -= term(count);
  return variance;
}

/// Known measured values of a rank's series, by step; NaN where unknown or warm-up.
std::vector<double> by_step(const CaseRecord& record, const RankRecord& rank, const char* name) {
  const Series* series = find_series(rank, name);
  if (series == nullptr) return {};
  std::vector<double> values = series->values;
  for (std::size_t i = 0; i < std::min(values.size(), record.warmup.size()); ++i) {
    if (record.warmup[i] != 0) values[i] = NAN;
  }
  return values;
}

std::optional<double> known_median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return std::nullopt;
  return quantile(std::move(values), 0.5);
}

}  // namespace

bool Trend::found() const { return p_value < trend_p && std::fabs(change) >= trend_change; }

std::optional<Trend> trend(std::vector<double> values) {
  if (values.size() < fewest_for_trend) return std::nullopt;
  values = block_medians(values);
  std::vector<double> slopes;
  double score = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      const double rise = values[j] - values[i];
      slopes.push_back(rise / static_cast<double>(j - i));
      score += rise > 0 ? 1 : rise < 0 ? -1 : 0;
    }
  }
  const double variance = variance_of_score(values);
  const double corrected = score > 0 ? score - 1 : score < 0 ? score + 1 : 0;
  const double z = variance > 0 ? corrected / std::sqrt(variance) : 0;
  const double rise = quantile(std::move(slopes), 0.5) * static_cast<double>(values.size() - 1);
  return Trend{rise / quantile(values, 0.5), std::erfc(std::fabs(z) / std::sqrt(2.0))};
}

Outliers outliers(const std::vector<double>& values) {
  Outliers found;
  if (values.empty()) return found;
  const double low = quantile(values, 0.25), high = quantile(values, 0.75);
  const double reach = 3 * (high - low);
  found.of = values.size();
  found.slow_fence = high + reach;
  for (const double value : values) {
    if (value > high + reach) ++found.slow;
    if (value < low - reach) ++found.fast;
  }
  return found;
}

std::vector<double> measured_steps(const CaseRecord& record) {
  std::vector<double> slowest;
  for (const RankRecord& rank : record.ranks) {
    const auto own = by_step(record, rank, "step_seconds");
    slowest.resize(std::max(slowest.size(), own.size()), NAN);
    for (std::size_t i = 0; i < own.size(); ++i) slowest[i] = std::fmax(slowest[i], own[i]);
  }
  std::erase_if(slowest, [](double value) { return std::isnan(value); });
  return slowest;
}

std::vector<RankPace> rank_paces(const CaseRecord& record) {
  std::vector<RankPace> paces;
  for (const RankRecord& rank : record.ranks) {
    auto steps = by_step(record, rank, "step_seconds");
    auto waits = by_step(record, rank, "exposed_sync_seconds");
    waits.resize(steps.size(), 0.0);
    std::vector<double> busy;
    for (std::size_t i = 0; i < steps.size(); ++i) busy.push_back(steps[i] - waits[i]);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (std::isnan(busy[i])) waits[i] = NAN;
    }
    const auto step = known_median(steps), own = known_median(busy), wait = known_median(waits);
    if (step && own && wait) paces.push_back({rank.rank, *step, *own, *wait});
  }
  return paces;
}

std::optional<Straggler> straggler(const CaseRecord& record) {
  const auto paces = rank_paces(record);
  const bool communicates = std::any_of(paces.begin(), paces.end(),
                                        [](const RankPace& pace) { return pace.wait_seconds > 0; });
  if (paces.size() < 2 || !communicates) return std::nullopt;
  const auto slowest = std::max_element(
      paces.begin(), paces.end(),
      [](const RankPace& a, const RankPace& b) { return a.busy_seconds < b.busy_seconds; });
  double others = 0;
  for (const RankPace& pace : paces) {
    if (pace.rank != slowest->rank) others += pace.busy_seconds;
  }
  const auto count = static_cast<double>(paces.size() - 1);
  return Straggler{slowest->rank, slowest->busy_seconds - others / count};
}

}  // namespace trainsuite
