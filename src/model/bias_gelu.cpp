#include "model/bias_gelu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/aligned.h"
#include "model/bias_gelu_kernel.h"
#include "model/column_sums_kernel.h"
#include "model/dispatched.h"

namespace trainsuite {
namespace {

BiasGelu work_on(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& out) {
  BiasGelu work{};
  work.rows = x.size(0), work.width = x.size(1);
  work.bf16 = x.scalar_type() == at::kBFloat16;
  work.x = x.const_data_ptr();
  work.bias = bias.const_data_ptr();
  work.out = out.mutable_data_ptr();
  return work;
}

at::Tensor cuda_forward(const at::Tensor& given_x, const at::Tensor& given_bias) {
  const at::Tensor x = aligned(given_x), bias = aligned(given_bias);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor out = at::empty_like(x);
  check_cuda(launch_bias_gelu_forward(work_on(x, bias, out), c10::cuda::getCurrentCUDAStream()),
             "bias gelu forward kernel");
  return out;
}

at::Tensor cpu_forward(const at::Tensor& x, const at::Tensor& bias) {
  return at::gelu(x.contiguous().to(at::kFloat) + bias, "tanh").to(x.scalar_type());
}

using Gradients = std::tuple<at::Tensor, at::Tensor>;  // of x, of the bias

Gradients cuda_backward(const at::Tensor& given_upstream, const at::Tensor& given_x,
                        const at::Tensor& given_bias) {
  const at::Tensor upstream = aligned(given_upstream), x = aligned(given_x),
                   bias = aligned(given_bias);
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor x_gradient = at::empty_like(x), bias_gradient = at::empty_like(bias);
  BiasGelu work = work_on(x, bias, x_gradient);
  const std::int64_t partial_rows = bias_gelu_partial_rows(work.rows, work.width, work.bf16);
  const at::Tensor partials = at::empty({partial_rows, work.width}, x.options().dtype(at::kFloat));
  work.upstream = upstream.const_data_ptr();
  work.partials = partials.mutable_data_ptr<float>();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  check_cuda(launch_bias_gelu_backward(work, stream), "bias gelu backward kernel");
  ColumnSums sums{};
  sums.partials = work.partials;
  sums.rows = partial_rows, sums.width = work.width, sums.segments = 1;
  sums.out[0] = bias_gradient.mutable_data_ptr(), sums.bf16[0] = work.bf16;
  check_cuda(launch_column_sums(sums, stream), "bias gelu column sums kernel");
  return {x_gradient, bias_gradient};
}

Gradients cpu_backward(const at::Tensor& upstream, const at::Tensor& x, const at::Tensor& bias) {
  const at::Tensor gradient = at::gelu_backward(upstream.contiguous().to(at::kFloat),
                                                x.contiguous().to(at::kFloat) + bias, "tanh");
  return {gradient.to(x.scalar_type()), gradient.sum(0).to(bias.scalar_type())};
}

at::Tensor forward_shapes(const at::Tensor& x, const at::Tensor&) { return shaped_like(x); }

Gradients backward_shapes(const at::Tensor&, const at::Tensor& x, const at::Tensor& bias) {
  return {shaped_like(x), shaped_like(bias)};
}

class BiasGeluFunction : public torch::autograd::Function<BiasGeluFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& bias) {
    context->save_for_backward({x, bias});
    static const auto op =
        dispatched<at::Tensor(const at::Tensor&, const at::Tensor&)>("bias_gelu_rows");
    const BelowAutograd below;
    return op.call(x, bias);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    static const auto op =
        dispatched<Gradients(const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
            "bias_gelu_rows_backward");
    const BelowAutograd below;
    const auto [x, bias] = op.call(upstream[0], saved[0], saved[1]);
    return {x, bias};
  }
};

}  // namespace

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  const bool dtype_known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (x.dim() != 2 || bias.dim() != 1 || bias.size(0) != x.size(1)) {
    fail("bias_gelu: x must be [rows, width] and bias [width]");
  }
  if (!dtype_known || bias.scalar_type() != x.scalar_type() || bias.device() != x.device()) {
    fail("bias_gelu: x and bias must both be float32 or both be bfloat16, on one device");
  }
  const auto row_bytes = x.size(1) * static_cast<std::int64_t>(x.element_size());
  if (x.is_cuda() && row_bytes % 16 != 0) {
    fail("bias_gelu: a row of {} bytes must be a multiple of 16 bytes", row_bytes);
  }
  return BiasGeluFunction::apply(x, bias);
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("bias_gelu_rows(Tensor x, Tensor bias) -> Tensor");
  m.def("bias_gelu_rows_backward(Tensor upstream, Tensor x, Tensor bias) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("bias_gelu_rows", &cpu_forward);
  m.impl("bias_gelu_rows_backward", &cpu_backward);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("bias_gelu_rows", &cuda_forward);
  m.impl("bias_gelu_rows_backward", &cuda_backward);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("bias_gelu_rows", &forward_shapes);
  m.impl("bias_gelu_rows_backward", &backward_shapes);
}

}  // namespace trainsuite
