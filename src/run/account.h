#pragma once
// What a training step takes by the model's own definition, beside what is measured.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "core/setting.h"

namespace trainsuite {

/// Bytes are one rank's, operations those of all ranks of the case together.
struct StepAccount {
  double flops = 0;           // forward and backward, attention halved as it is causal
  double flops_uncausal = 0;  // not halved
  /// Tokens of a step that are no padding, in the mean over a pass, where steps differ.
  std::optional<double> tokens{};
  std::int64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  /// When backward ends; 0: no more than gradient_bytes and activations take.
  std::int64_t all_gradient_bytes = 0;
  /// Live when backward begins. Absent where they are not known (PyTorch's own temporaries).
  std::optional<std::int64_t> activation_bytes{};
  /// Bytes of device memory that a step reads and writes even where all that can be fused is.
  std::optional<double> least_bytes{};

  std::optional<std::int64_t> peak_bytes() const {
    if (!activation_bytes) return std::nullopt;
    return weight_bytes + optimizer_bytes +
           std::max(gradient_bytes + *activation_bytes, all_gradient_bytes);
  }
};

/// What a rank's step moves, for least_bytes.
struct StepTraffic {
  std::int64_t micro_batches = 1;
  double weight_bytes = 0;      // that a micro-batch computes with: read in forward and backward
  double activation_bytes = 0;  // kept for backward, of all micro-batches together
  double trained = 0;           // parameters
  // Bytes a trained parameter: of its gradient, of value and two moments, of its copy.
  double gradient_width = 4, state_width = 12, copy_width = 0;
};
/// Every micro-batch reads its weights twice, writes and reads its activations, and writes (or adds
/// to) gradients; the optimizer reads those, reads and writes values and moments, writes copies.
double least_step_bytes(const StepTraffic& traffic);

/// Under their recorded names: flops_per_step, flops_per_step_uncausal, least_bytes_per_step,
/// predicted_weight_bytes, predicted_gradient_bytes, predicted_optimizer_bytes,
/// predicted_activation_bytes, predicted_bytes (of the peak). What is absent is left out.
Settings account_settings(const StepAccount& account);

/// The share of a GPU's dense peak at which a step is expected to run, for plans alone.
inline constexpr double expected_share_of_peak = 0.4;
/// Seconds of `steps` steps over `ranks` GPUs of `peak_flops` each.
double expected_seconds(const StepAccount& account, std::int64_t steps, int ranks,
                        double peak_flops);

}  // namespace trainsuite
