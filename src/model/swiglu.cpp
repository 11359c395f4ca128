#include "model/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "core/check_cuda.h"
#include "model/aligned.h"
#include "model/dispatched.h"
#include "model/swiglu_kernel.h"

namespace trainsuite {
namespace {

/// Whether the kernel takes it; else operators do.
bool has_kernel(const at::Tensor& gate_up) {
  const auto half_bytes = gate_up.size(1) / 2 * static_cast<std::int64_t>(gate_up.element_size());
  return gate_up.is_cuda() && half_bytes % 16 == 0;
}

Swiglu work_on(const at::Tensor& gate_up, const at::Tensor& out) {
  Swiglu work{};
  work.rows = gate_up.size(0), work.hidden = gate_up.size(1) / 2;
  work.bf16 = gate_up.scalar_type() == at::kBFloat16;
  work.gate_up = gate_up.const_data_ptr();
  work.out = out.defined() ? out.mutable_data_ptr() : nullptr;
  return work;
}

at::Tensor empty_activation(const at::Tensor& gate_up) {
  return at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
}

SwigluGradients backward_by_operators(const at::Tensor& upstream, const at::Tensor& gate_up,
                                      bool wants_activation) {
  const at::Tensor gradient = at::empty_like(gate_up);
  const std::vector<at::Tensor> parts = gate_up.chunk(2, -1), out = gradient.chunk(2, -1);
  at::Tensor gate_gradient = out[0], up_gradient = out[1];
  const at::Tensor silu = at::silu(parts[0]);
  at::silu_backward_out(gate_gradient, upstream * parts[1], parts[0]);
  at::mul_out(up_gradient, upstream, silu);
  return {gradient, wants_activation ? silu * parts[1] : at::Tensor()};
}

at::Tensor forward(const at::Tensor& gate_up) {
  if (!has_kernel(gate_up)) {
    const std::vector<at::Tensor> parts = gate_up.chunk(2, -1);
    return at::silu(parts[0]).mul_(parts[1]);
  }
  const c10::cuda::CUDAGuard guard(gate_up.device());
  const at::Tensor in = aligned(gate_up), out = empty_activation(in);
  check_cuda(launch_swiglu_forward(work_on(in, out), c10::cuda::getCurrentCUDAStream()),
             "SwiGLU kernel");
  return out;
}

SwigluGradients backward(const at::Tensor& upstream, const at::Tensor& gate_up,
                         bool wants_activation) {
  if (!has_kernel(gate_up)) return backward_by_operators(upstream, gate_up, wants_activation);
  const c10::cuda::CUDAGuard guard(gate_up.device());
  const at::Tensor in = aligned(gate_up), of_out = aligned(upstream);
  const SwigluGradients out{at::empty_like(in),
                            wants_activation ? empty_activation(in) : at::Tensor()};
  Swiglu work = work_on(in, out.activation);
  work.upstream = of_out.const_data_ptr();
  work.gradient = out.gate_up.mutable_data_ptr();
  check_cuda(launch_swiglu_backward(work, c10::cuda::getCurrentCUDAStream()),
             "SwiGLU backward kernel");
  return out;
}

using Pair = std::tuple<at::Tensor, at::Tensor>;
using BackwardSignature = Pair(const at::Tensor&, const at::Tensor&, bool);

Pair backward_op(const at::Tensor& upstream, const at::Tensor& gate_up, bool wants_activation) {
  const SwigluGradients out = backward(upstream, gate_up, wants_activation);
  return {out.gate_up, wants_activation ? out.activation : nothing_like(gate_up)};
}

Pair backward_shapes(const at::Tensor&, const at::Tensor& gate_up, bool wants_activation) {
  return {shaped_like(gate_up),
          wants_activation ? empty_activation(gate_up) : nothing_like(gate_up)};
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  static const auto op = dispatched<at::Tensor(const at::Tensor&)>("swiglu");
  const BelowAutograd below;
  return op.call(gate_up);
}

SwigluGradients swiglu_backward(const at::Tensor& upstream, const at::Tensor& gate_up,
                                bool wants_activation) {
  static const auto op = dispatched<BackwardSignature>("swiglu_backward");
  const BelowAutograd below;
  const auto [gradient, activation] = op.call(upstream, gate_up, wants_activation);
  return {gradient, or_undefined(activation, wants_activation)};
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("swiglu(Tensor gate_up) -> Tensor");
  m.def(
      "swiglu_backward(Tensor upstream, Tensor gate_up, bool wants_activation) "
      "-> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("swiglu", &forward);
  m.impl("swiglu_backward", &backward_op);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("swiglu", &forward);
  m.impl("swiglu_backward", &backward_op);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("swiglu", &empty_activation);
  m.impl("swiglu_backward", &backward_shapes);
}

}  // namespace trainsuite
