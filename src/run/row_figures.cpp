#include "run/row_figures.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "result/statistics.h"
#include "run/speed_up.h"

namespace trainsuite {
namespace {

/// Measured (not warm-up) values of one rank's series, NaN where unknown.
std::vector<double> measured(const CaseRecord& record, const RankRecord& rank,
                             const std::string& name) {
  std::vector<double> values;
  const Series* series = find_series(rank, name);
  if (series == nullptr) return values;
  for (std::size_t i = 0; i < series->values.size(); ++i) {
    const bool warmup = i < record.warmup.size() && record.warmup[i] != 0;
    if (!warmup) values.push_back(series->values[i]);
  }
  return values;
}

/// Median over the measured steps of the longest wait of any rank. Absent where nothing is
/// communicated or measured.
std::optional<double> exposed_sync(const CaseRecord& record) {
  if (find_text(record.settings, "wire") == "none") return std::nullopt;
  std::vector<double> longest;
  for (const RankRecord& rank : record.ranks) {
    const auto waits = measured(record, rank, "exposed_sync_seconds");
    longest.resize(std::max(longest.size(), waits.size()), std::nan(""));
    for (std::size_t i = 0; i < waits.size(); ++i) longest[i] = std::fmax(longest[i], waits[i]);
  }
  std::erase_if(longest, [](double wait) { return std::isnan(wait); });
  if (longest.empty()) return std::nullopt;
  return quantile(std::move(longest), 0.5);
}

/// The row as one of its ranks alone would have it.
CaseRecord only(const CaseRecord& record, const RankRecord& rank) {
  CaseRecord one;
  one.warmup = record.warmup;
  one.ranks = {rank};
  return one;
}

/// p10 and p90 of tokens/s, from the p90 and p10 of the step time. Independent ranks: the sum over
/// ranks of own tokens / own quantile, as their median is defined.
void add_spread(const CaseRecord& record, RowFigures& figures) {
  const auto tokens = find_number(record.settings, "tokens_per_step");
  if (!tokens) return;
  const bool independent = find_text(record.settings, "recipe").starts_with("independent");
  double slow = 0, fast = 0;
  const auto add = [&](const std::optional<StepSummary>& steps, double step_tokens) {
    slow += steps ? step_tokens / steps->p90_seconds : std::nan("");
    fast += steps ? step_tokens / steps->p10_seconds : std::nan("");
  };
  if (!independent) add(summarize_steps(record), *tokens);
  for (const RankRecord& rank : record.ranks) {
    const double share = *tokens / static_cast<double>(record.ranks.size());
    if (independent) add(summarize_steps(only(record, rank)), share);
  }
  if (!std::isfinite(slow) || !std::isfinite(fast) || slow <= 0) return;
  figures.tokens_per_second_p10 = slow;
  figures.tokens_per_second_p90 = fast;
}

/// GPUs that took part: ranks may share one. On CPUs ranks: their ceiling is of a rank among all.
std::optional<double> gpu_count(const CaseRecord& record, const SummaryFacts& facts) {
  std::set<std::string> uuids;
  for (const RankRecord& rank : record.ranks) {
    for (const RankIdentity& identity : facts.ranks) {
      if (identity.rank == rank.rank && !identity.uuid.empty()) uuids.insert(identity.uuid);
    }
  }
  if (uuids.empty() && (facts.cuda || record.ranks.empty())) return std::nullopt;
  return static_cast<double>(uuids.empty() ? record.ranks.size() : uuids.size());
}

void add_mfu(const CaseRecord& record, const SummaryFacts& facts, RowFigures& figures) {
  const auto peak = find_number(record.results, "peak_flops");
  const auto gpus = gpu_count(record, facts);
  if (!peak || !gpus || !figures.tokens_per_second || *peak <= 0) return;
  const auto fraction = [&](const char* name) -> std::optional<double> {
    const auto flops = find_number(record.results, name);
    if (!flops) return std::nullopt;
    return *flops * *figures.tokens_per_second / (*peak * *gpus);
  };
  figures.mfu = fraction("flops_per_token");
  figures.mfu_uncausal = fraction("flops_per_token_uncausal");
}

}  // namespace

RowFigures row_figures(const CaseRecord& record, const SummaryFacts& facts) {
  RowFigures figures;
  if (record.status != "ok") return figures;
  figures.tokens_per_second = tokens_per_second(record);
  if (const auto steps = summarize_steps(record)) {
    figures.step_seconds = steps->median_seconds;
  } else if (const auto means = loop_means(record)) {
    figures.of_loop = true;
    figures.step_seconds = means->step_seconds;
    figures.tokens_per_second = means->tokens_per_second;
  }
  add_spread(record, figures);
  figures.exposed_sync_seconds = exposed_sync(record);
  figures.peak_allocated_bytes = find_number(record.results, "peak_allocated_bytes");
  figures.peak_reserved_bytes = find_number(record.results, "peak_reserved_bytes");
  add_mfu(record, facts, figures);
  return figures;
}

}  // namespace trainsuite
