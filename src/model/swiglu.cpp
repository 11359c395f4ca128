#include "model/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainsuite {
namespace {

class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate_up) {
    context->save_for_backward({gate_up});
    const std::vector<at::Tensor> parts = gate_up.chunk(2, -1);
    return at::silu(parts[0]).mul_(parts[1]);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const at::Tensor gradient = at::empty_like(gate_up);
    const std::vector<at::Tensor> parts = gate_up.chunk(2, -1), out = gradient.chunk(2, -1);
    at::Tensor gate_gradient = out[0], up_gradient = out[1];
    at::silu_backward_out(gate_gradient, upstream[0] * parts[1], parts[0]);
    at::mul_out(up_gradient, upstream[0], at::silu(parts[0]));
    return {gradient};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) { return SwiGlu::apply(gate_up); }

}  // namespace trainsuite
