#pragma once
// Linear layers behind one call.
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// y = x W^T + b.
struct Linear {
  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out]; undefined: none
};

/// x [tokens, in] in the weight's dtype -> [tokens, out].
at::Tensor apply(const Linear& linear, const at::Tensor& x);
/// The dtype in which the layer takes its input.
at::ScalarType input_dtype(const Linear& linear);

}  // namespace trainsuite
