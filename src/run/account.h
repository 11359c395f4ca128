#pragma once
// What a training step takes by the model's own definition, beside what is measured.
#include <cstdint>
#include <optional>

#include "core/setting.h"

namespace trainsuite {

/// Bytes are one rank's, operations those of all ranks of the case together.
struct StepAccount {
  double flops = 0;           // forward and backward, attention halved as it is causal
  double flops_uncausal = 0;  // not halved
  std::int64_t weight_bytes = 0, gradient_bytes = 0, optimizer_bytes = 0;
  /// Live when backward begins. Absent where they are not known (PyTorch's own temporaries).
  std::optional<std::int64_t> activation_bytes{};
  /// Bytes of device memory that a step reads and writes even where all that can be fused is.
  std::optional<double> least_bytes{};

  std::optional<std::int64_t> peak_bytes() const {
    if (!activation_bytes) return std::nullopt;
    return weight_bytes + gradient_bytes + optimizer_bytes + *activation_bytes;
  }
};

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
