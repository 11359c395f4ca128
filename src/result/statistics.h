#pragma once
// Pure arithmetic of the summaries.
#include <cstdint>
#include <optional>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// Linear-interpolated quantile (numpy's default), 0 <= q <= 1. Throws Error when empty.
double quantile(std::vector<double> values, double q);
double mean(const std::vector<double>& values);

struct StepSummary {
  double median_seconds, p10_seconds, p90_seconds, mean_seconds;
  int slowest_rank;  // the rank with the largest own median
};
/// Over the measured steps of all ranks: per step the slowest rank's time, then its median and
/// p10/p90. Absent when there is no measured step.
std::optional<StepSummary> summarize_steps(const CaseRecord& record);

/// Means over the steps after the first, warm-up included, from the ranks' facts `loop_seconds` and
/// `loop_steps`: what is known where single steps are not timed.
struct LoopMeans {
  double step_seconds;       // of the slowest rank
  double tokens_per_second;  // tokens_per_step / step_seconds; `independent`: sum of own rates
};
std::optional<LoopMeans> loop_means(const CaseRecord& record);
/// Its first figure alone: also known where steps differ in tokens.
std::optional<double> loop_step_seconds(const CaseRecord& record);

/// The named series of one rank, or nullptr.
const Series* find_series(const RankRecord& rank, const std::string& name);

/// tokens_per_step / median step time; of a row with `train_seconds` the tokens that are no padding
/// over that time. Sum over ranks of own rate for `independent`.
std::optional<double> tokens_per_second(const CaseRecord& record);

/// FLOPs per token of a decoder, forward and backward. Matmul parameters (input embedding
/// excluded, head included) take 6 each; attention 12 x layers x width x sequence, halved when
/// causal (Chowdhery et al. 2022, PaLM, appendix B).
double flops_per_token(double matmul_parameters, double layers, double width, double sequence,
                       bool causal_halving);

}  // namespace trainsuite
