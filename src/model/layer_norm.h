#pragma once
// LayerNorm of an fp32 residual stream whose result is wanted in the dtype of the next matrix
// product, fused with the residual sum before it. Statistics in fp32, epsilon 1e-5.
#include <ATen/core/Tensor.h>

#include <tuple>

namespace trainsuite {

/// x itself and its LayerNorm in `dtype` (fp32 or bf16); x [rows, width] fp32; weight, bias [width]
/// fp32. Whoever uses the x returned instead of the one given has both gradients of it added by the
/// backward kernel. On a GPU the width must be a multiple of 4 and at most 2048, else Error.
std::tuple<at::Tensor, at::Tensor> layer_norm_cast(const at::Tensor& x, const at::Tensor& weight,
                                                   const at::Tensor& bias, at::ScalarType dtype);

/// sum = residual + delta + delta_bias in fp32, and its LayerNorm in delta's dtype.
/// residual [rows, width] fp32; delta [rows, width] and delta_bias [width] in one dtype (fp32 or
/// bf16): the product of a linear layer and the bias it has yet to get. Width as above.
///
/// Bytes a bf16 element: 12 forward (residual, delta, sum, normalized), 16 backward, against 24
/// and about 44 for the operators one by one.
std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& residual,
                                                  const at::Tensor& delta,
                                                  const at::Tensor& delta_bias,
                                                  const at::Tensor& weight, const at::Tensor& bias);

}  // namespace trainsuite
