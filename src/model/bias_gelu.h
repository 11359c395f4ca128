#pragma once
// A linear layer's bias and the tanh GELU after it in one pass.
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// gelu(x + bias), tanh approximation. x [rows, width] and bias [width] in one dtype (fp32 or
/// bf16), computed in fp32. Saves x alone; the backward pass sums the bias's gradient on its way.
/// On a GPU a row must be a multiple of 16 bytes, else Error.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias);

}  // namespace trainsuite
