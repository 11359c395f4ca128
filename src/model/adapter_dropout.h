#pragma once
// Dropout whose mask is made again from a counter wherever it is needed.
#include "model/linear.h"

namespace trainsuite {

/// x / (1 - p) where the mask keeps it, else 0; x itself where p is 0. The mask depends on counter,
/// layer and element alone, and is the same on CPU and CUDA. x fp32 or bf16. Not differentiable:
/// its gradient is itself of the upstream gradient.
at::Tensor dropped_out(const at::Tensor& x, const AdapterDropout& dropout);

/// The counter of micro-batch number `micro_batch` of a training with this seed.
std::int64_t dropout_counter(std::int64_t seed, std::int64_t micro_batch);

}  // namespace trainsuite
