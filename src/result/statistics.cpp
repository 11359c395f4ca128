#include "result/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/error.h"

namespace trainsuite {

namespace {

/// Measured, known values of a row; steps beyond the end of `warmup` count as measured.
std::vector<double> measured(const std::vector<double>& values,
                             const std::vector<std::uint8_t>& warmup) {
  std::vector<double> kept;
  for (std::size_t step = 0; step < values.size(); ++step) {
    if (step < warmup.size() && warmup[step] != 0) continue;
    if (!std::isnan(values[step])) kept.push_back(values[step]);
  }
  return kept;
}

/// Per step the slowest rank's time, warm-up dropped. A rank with an unknown time is passed over.
std::vector<double> slowest_times(const CaseRecord& record) {
  std::vector<double> slowest;
  for (const RankRecord& rank : record.ranks) {
    const Series* times = find_series(rank, "step_seconds");
    if (times == nullptr) continue;
    if (slowest.size() < times->values.size()) slowest.resize(times->values.size(), NAN);
    for (std::size_t step = 0; step < times->values.size(); ++step)
      slowest[step] = std::fmax(slowest[step], times->values[step]);
  }
  return measured(slowest, record.warmup);
}

std::optional<double> median_of(const RankRecord& rank, const std::string& name,
                                const std::vector<std::uint8_t>& warmup) {
  const Series* series = find_series(rank, name);
  if (series == nullptr) return std::nullopt;
  const std::vector<double> values = measured(series->values, warmup);
  if (values.empty()) return std::nullopt;
  return quantile(values, 0.5);
}

/// The last entry of that name counts, as in the file.
const Value* find_value(const Settings& settings, const std::string& name) {
  auto at = std::find_if(settings.rbegin(), settings.rend(),
                         [&](const Setting& setting) { return setting.name == name; });
  return at == settings.rend() ? nullptr : &at->value;
}

std::optional<double> find_number(const Settings& settings, const std::string& name) {
  const Value* value = find_value(settings, name);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(value)) return *real;
  return std::nullopt;
}

std::optional<double> find_number(const CaseRecord& record, const std::string& name) {
  const auto result = find_number(record.results, name);
  return result ? result : find_number(record.settings, name);
}

bool is_independent(const CaseRecord& record) {
  const Value* recipe = find_value(record.settings, "recipe");
  const std::string* text = recipe == nullptr ? nullptr : std::get_if<std::string>(recipe);
  return text != nullptr && (*text == "independent" || text->starts_with("independent-"));
}

/// Mean step of one rank's loop.
std::optional<double> own_loop_step(const RankRecord& rank) {
  const auto seconds = find_number(rank.facts, "loop_seconds");
  const auto steps = find_number(rank.facts, "loop_steps");
  if (!seconds || !steps || *seconds <= 0 || *steps <= 0) return std::nullopt;
  return *seconds / *steps;
}

/// Tokens that a rank adds to a step.
std::optional<double> own_tokens(const CaseRecord& record, const RankRecord& rank) {
  if (const auto tokens = median_of(rank, "tokens", record.warmup)) return tokens;
  const std::optional<double> tokens_per_step = find_number(record, "tokens_per_step");
  if (!tokens_per_step) return std::nullopt;
  return *tokens_per_step / static_cast<double>(record.ranks.size());
}

/// Ranks that do not wait for one another each have a rate of their own.
std::optional<double> independent_rate(const CaseRecord& record) {
  double rate = 0;
  for (const RankRecord& rank : record.ranks) {
    const auto seconds = median_of(rank, "step_seconds", record.warmup);
    const auto tokens = own_tokens(record, rank);
    if (!seconds || *seconds <= 0 || !tokens) return std::nullopt;
    rate += *tokens / *seconds;
  }
  if (record.ranks.empty()) return std::nullopt;
  return rate;
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  if (values.empty()) fail("quantile of no values");
  if (!(q >= 0 && q <= 1)) fail("quantile {} lies outside 0 to 1", q);
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }))
    fail("quantile of values that hold NaN");
  std::sort(values.begin(), values.end());
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double fraction = position - static_cast<double>(below);
  return values[below] + fraction * (values[above] - values[below]);
}

double mean(const std::vector<double>& values) {
  if (values.empty()) fail("mean of no values");
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<StepSummary> summarize_steps(const CaseRecord& record) {
  const std::vector<double> times = slowest_times(record);
  if (times.empty()) return std::nullopt;
  StepSummary summary{quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), mean(times),
                      record.ranks.front().rank};
  double largest_median = -1;
  for (const RankRecord& rank : record.ranks) {
    const auto median = median_of(rank, "step_seconds", record.warmup);
    if (!median || *median <= largest_median) continue;
    largest_median = *median;
    summary.slowest_rank = rank.rank;
  }
  return summary;
}

std::optional<double> loop_step_seconds(const CaseRecord& record) {
  std::optional<double> slowest;
  for (const RankRecord& rank : record.ranks) {
    const auto own = own_loop_step(rank);
    if (!own) return std::nullopt;
    slowest = std::max(slowest.value_or(0), *own);
  }
  return slowest;
}

std::optional<LoopMeans> loop_means(const CaseRecord& record) {
  const auto slowest = loop_step_seconds(record);
  if (!slowest) return std::nullopt;
  LoopMeans means{*slowest, 0};
  for (const RankRecord& rank : record.ranks) {
    const auto tokens = own_tokens(record, rank);
    if (!tokens) return std::nullopt;
    means.tokens_per_second += *tokens / *own_loop_step(rank);
  }
  if (is_independent(record)) return means;
  const std::optional<double> tokens_per_step = find_number(record, "tokens_per_step");
  if (!tokens_per_step) return std::nullopt;
  means.tokens_per_second = *tokens_per_step / means.step_seconds;
  return means;
}

const Series* find_series(const RankRecord& rank, const std::string& name) {
  auto at = std::find_if(rank.series.begin(), rank.series.end(),
                         [&](const Series& series) { return series.name == name; });
  return at == rank.series.end() ? nullptr : &*at;
}

/// Where steps differ: tokens that are no padding, over all of the training's time.
std::optional<double> training_rate(const CaseRecord& record) {
  const std::optional<double> seconds = find_number(record, "train_seconds");
  if (!seconds || *seconds <= 0) return std::nullopt;
  double tokens = 0;
  for (const RankRecord& rank : record.ranks) {
    const Series* series = find_series(rank, "effective_tokens");
    if (series == nullptr) return std::nullopt;
    for (const double count : series->values) tokens += count;
  }
  return tokens / *seconds;
}

std::optional<double> tokens_per_second(const CaseRecord& record) {
  if (const auto rate = training_rate(record)) return rate;
  if (is_independent(record)) return independent_rate(record);
  const std::optional<double> tokens_per_step = find_number(record, "tokens_per_step");
  const std::optional<StepSummary> steps = summarize_steps(record);
  if (!tokens_per_step || !steps || steps->median_seconds <= 0) return std::nullopt;
  return *tokens_per_step / steps->median_seconds;
}

double flops_per_token(double matmul_parameters, double layers, double width, double sequence,
                       bool causal_halving) {
  const double attention = 12 * layers * width * sequence;
  return 6 * matmul_parameters + (causal_halving ? attention / 2 : attention);
}

}  // namespace trainsuite
