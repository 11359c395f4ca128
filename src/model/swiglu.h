#pragma once
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// silu(gate) x up of gate_up [tokens, 2 x hidden], gate first -> [tokens, hidden]. Keeps its input
/// alone: backward computes silu again.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace trainsuite
