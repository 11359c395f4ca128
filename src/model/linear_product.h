#pragma once
// A linear layer's products, forward and backward, as plain functions.
#include "model/linear.h"

namespace trainsuite {

/// x W^T + b and g W, whatever W is stored as.
at::Tensor frozen_product(const Linear& linear, const at::Tensor& x);
at::Tensor frozen_product_backward(const Linear& linear, const at::Tensor& upstream);

struct LinearProduct {
  at::Tensor y, inner;  // [tokens, out]; x A^T [tokens, layers x rank], undefined without adapters
};
LinearProduct linear_product(const Linear& linear, const at::Tensor& x);

/// Gradients that need no x: of x, of the inner activations and of B.
struct LinearInputGradients {
  at::Tensor x, inner, b;
};
LinearInputGradients linear_input_gradients(const Linear& linear, const at::Tensor& upstream,
                                            const at::Tensor& inner, bool wants_x);

/// Gradients that need x; where the weight's place in a sink is known, it goes there.
struct LinearWeightGradients {
  at::Tensor weight, a;
};
LinearWeightGradients linear_weight_gradients(const Linear& linear, const at::Tensor& upstream,
                                              const at::Tensor& x, const at::Tensor& inner_gradient,
                                              bool wants_weight);

}  // namespace trainsuite
