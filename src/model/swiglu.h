#pragma once
// SwiGLU, forward and backward as plain functions; linear.cpp makes them differentiable together
// with the product that follows.
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// silu(gate) x up of gate_up [tokens, 2 x hidden], gate first -> [tokens, hidden].
at::Tensor swiglu(const at::Tensor& gate_up);

struct SwigluGradients {
  at::Tensor gate_up;
  at::Tensor activation;  // swiglu(gate_up) again; undefined where not wanted
};
SwigluGradients swiglu_backward(const at::Tensor& upstream, const at::Tensor& gate_up,
                                bool wants_activation);

}  // namespace trainsuite
