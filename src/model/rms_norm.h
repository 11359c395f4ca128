#pragma once
// RMSNorm of a sum, forward and backward as plain functions, which linear.cpp makes differentiable
// together with the product that follows; and differentiable by itself.
#include <ATen/core/Tensor.h>

#include "model/gradient_sink.h"

namespace trainsuite {

struct RmsNorm {
  at::Tensor sum, normalized, rstd;
};
/// sum = residual + delta (undefined: residual itself), in the residual's dtype; normalized = sum /
/// sqrt(mean(sum^2) + epsilon) x weight, computed in fp32, in `dtype`. residual and delta [tokens,
/// width], weight [width] in the residual's dtype; delta in `dtype`; rstd [tokens, 1] fp32.
RmsNorm rms_norm(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                 double epsilon, at::ScalarType dtype);

struct RmsNormGradients {
  at::Tensor residual, delta, weight;  // delta, weight undefined where not wanted
  at::Tensor normalized;               // computed again; undefined where not wanted
};
struct RmsNormWants {
  bool delta, weight, normalized;
  GradientTarget target{};  // of the weight; with a sink no gradient of it is returned
};
/// `upstream` of normalized; `sum_upstream` of sum, undefined: none.
RmsNormGradients rms_norm_backward(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                                   const at::Tensor& sum, const at::Tensor& rstd,
                                   const at::Tensor& weight, const RmsNormWants& wants);

/// rms_norm's `normalized` alone, differentiable in residual, delta and weight.
at::Tensor rms_normalized(const at::Tensor& residual, const at::Tensor& delta,
                          const at::Tensor& weight, double epsilon, at::ScalarType dtype);

}  // namespace trainsuite
