#include "model/layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/aligned.h"
#include "model/column_sums_kernel.h"
#include "model/dispatched.h"
#include "model/layer_norm_kernel.h"

namespace trainsuite {
namespace {

constexpr double kEpsilon = 1e-5;

struct Normalized {
  at::Tensor sum, normalized, mean, rstd;
};
struct Gradients {
  at::Tensor residual, delta, delta_bias, weight, bias;
};

Normalized cpu_forward(const at::Tensor& residual, const at::Tensor& delta,
                       const at::Tensor& delta_bias, const at::Tensor& weight,
                       const at::Tensor& bias, at::ScalarType dtype) {
  const at::Tensor sum = delta.defined() ? residual + delta + delta_bias : residual;
  const auto [normalized, mean, rstd] =
      at::native_layer_norm(sum, {sum.size(1)}, weight, bias, kEpsilon);
  return {sum, normalized.to(dtype), mean.view({-1}), rstd.view({-1})};
}

Normalized cuda_forward(const at::Tensor& residual, const at::Tensor& delta,
                        const at::Tensor& delta_bias, const at::Tensor& weight,
                        const at::Tensor& bias, at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(residual.device());
  const bool adds = delta.defined();
  const Normalized out{adds ? at::empty_like(residual) : residual,
                       at::empty(residual.sizes(), residual.options().dtype(dtype)),
                       at::empty({residual.size(0)}, residual.options()),
                       at::empty({residual.size(0)}, residual.options())};
  NormForward work{};
  work.rows = residual.size(0), work.width = residual.size(1);
  work.bf16 = dtype == at::kBFloat16;
  work.epsilon = static_cast<float>(kEpsilon);
  work.residual = residual.const_data_ptr<float>();
  work.delta = adds ? delta.const_data_ptr() : nullptr;
  work.delta_bias = adds ? delta_bias.const_data_ptr() : nullptr;
  work.weight = weight.const_data_ptr<float>();
  work.bias = bias.const_data_ptr<float>();
  work.sum = adds ? out.sum.mutable_data_ptr<float>() : nullptr;
  work.normalized = out.normalized.mutable_data_ptr();
  work.mean = out.mean.mutable_data_ptr<float>();
  work.rstd = out.rstd.mutable_data_ptr<float>();
  check_cuda(launch_norm_forward(work, c10::cuda::getCurrentCUDAStream()),
             "layer norm forward kernel");
  return out;
}

Gradients cpu_backward(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                       const Normalized& saved, const at::Tensor& weight, const at::Tensor& bias) {
  auto [sum_gradient, weight_gradient, bias_gradient] = at::native_layer_norm_backward(
      upstream.to(at::kFloat), saved.sum, {saved.sum.size(1)}, saved.mean.view({-1, 1}),
      saved.rstd.view({-1, 1}), weight, bias, {true, true, true});
  if (sum_upstream.defined()) sum_gradient = sum_gradient + sum_upstream;
  const at::ScalarType dtype = upstream.scalar_type();
  return {sum_gradient, sum_gradient.to(dtype), sum_gradient.sum(0).to(dtype), weight_gradient,
          bias_gradient};
}

Gradients cuda_backward(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                        const Normalized& saved, const at::Tensor& weight, bool adds) {
  const c10::cuda::CUDAGuard guard(saved.sum.device());
  const std::int64_t rows = saved.sum.size(0), width = saved.sum.size(1);
  const at::TensorOptions options = saved.sum.options();
  Gradients out;
  out.residual = at::empty_like(saved.sum);
  out.delta =
      adds && upstream.scalar_type() != at::kFloat ? at::empty_like(upstream) : at::Tensor();
  out.delta_bias = at::empty({width}, upstream.options());
  out.weight = at::empty({width}, options);
  out.bias = at::empty({width}, options);
  const std::int64_t blocks = norm_backward_blocks(rows);
  const at::Tensor partials = at::empty({blocks, 3, width}, options);
  NormBackward work{};
  work.rows = rows, work.width = width;
  work.bf16 = upstream.scalar_type() == at::kBFloat16;
  work.upstream = upstream.const_data_ptr();
  work.sum_upstream = sum_upstream.defined() ? sum_upstream.const_data_ptr<float>() : nullptr;
  work.sum = saved.sum.const_data_ptr<float>();
  work.mean = saved.mean.const_data_ptr<float>();
  work.rstd = saved.rstd.const_data_ptr<float>();
  work.weight = weight.const_data_ptr<float>();
  work.sum_gradient = out.residual.mutable_data_ptr<float>();
  work.delta_gradient = out.delta.defined() ? out.delta.mutable_data_ptr() : nullptr;
  work.partials = partials.mutable_data_ptr<float>();
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  check_cuda(launch_norm_backward(work, stream), "layer norm backward kernel");
  const ColumnSums sums{work.partials,
                        blocks,
                        width,
                        3,
                        {out.weight.mutable_data_ptr(), out.bias.mutable_data_ptr(),
                         out.delta_bias.mutable_data_ptr()},
                        {false, false, work.bf16}};
  check_cuda(launch_column_sums(sums, stream), "layer norm column sums kernel");
  if (adds && !out.delta.defined()) out.delta = out.residual;  // fp32: the same values
  return out;
}

using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using ForwardSignature = ForwardResult(const at::Tensor&, const std::optional<at::Tensor>&,
                                       const std::optional<at::Tensor>&, const at::Tensor&,
                                       const at::Tensor&, bool);

at::Tensor aligned_or_none(const std::optional<at::Tensor>& tensor) {
  return tensor ? aligned(*tensor) : at::Tensor();
}

/// {sum, normalized, mean, rstd}; no sum where nothing is added: operators do not return what they
/// were given.
template <bool cuda>
ForwardResult forward_op(const at::Tensor& residual, const std::optional<at::Tensor>& delta,
                         const std::optional<at::Tensor>& delta_bias, const at::Tensor& weight,
                         const at::Tensor& bias, bool bf16) {
  const auto run = cuda ? cuda_forward : cpu_forward;
  const Normalized out = run(aligned(residual), aligned_or_none(delta), aligned_or_none(delta_bias),
                             aligned(weight), aligned(bias), bf16 ? at::kBFloat16 : at::kFloat);
  return {delta ? out.sum : nothing_like(residual), out.normalized, out.mean, out.rstd};
}

ForwardResult forward_shapes(const at::Tensor& residual, const std::optional<at::Tensor>& delta,
                             const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&,
                             bool bf16) {
  const auto dtype = bf16 ? at::kBFloat16 : at::kFloat;
  const auto row_values = [&] { return at::empty({residual.size(0)}, residual.options()); };
  return {shaped_like(residual, delta.has_value()),
          at::empty(residual.sizes(), residual.options().dtype(dtype)), row_values(), row_values()};
}

using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using BackwardSignature = BackwardResult(const at::Tensor&, const std::optional<at::Tensor>&,
                                         const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         const at::Tensor&, const at::Tensor&, bool);

/// Gradients of residual, delta, delta_bias, weight, bias; the delta's is left out where it is the
/// residual's.
template <bool cuda>
BackwardResult backward_op(const at::Tensor& upstream,
                           const std::optional<at::Tensor>& sum_upstream, const at::Tensor& sum,
                           const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& weight,
                           const at::Tensor& bias, bool adds) {
  const Normalized saved{aligned(sum), {}, mean, rstd};
  const at::Tensor of_normalized = aligned(upstream), of_sum = aligned_or_none(sum_upstream);
  const Gradients out = cuda ? cuda_backward(of_normalized, of_sum, saved, aligned(weight), adds)
                             : cpu_backward(of_normalized, of_sum, saved, weight, bias);
  const bool own_delta = adds && upstream.scalar_type() != at::kFloat;
  return {out.residual, own_delta ? out.delta : nothing_like(upstream), out.delta_bias, out.weight,
          out.bias};
}

BackwardResult backward_shapes(const at::Tensor& upstream, const std::optional<at::Tensor>&,
                               const at::Tensor& sum, const at::Tensor&, const at::Tensor&,
                               const at::Tensor& weight, const at::Tensor& bias, bool adds) {
  const bool own_delta = adds && upstream.scalar_type() != at::kFloat;
  return {shaped_like(sum), shaped_like(upstream, own_delta),
          at::empty({sum.size(1)}, upstream.options()), shaped_like(weight), shaped_like(bias)};
}

class LayerNorm : public torch::autograd::Function<LayerNorm> {
 public:
  /// {normalized, sum}. Without a delta the sum is the residual: passed through, so that what else
  /// uses it hands its gradient in here, where the kernel adds it.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& residual,
                                                const std::optional<at::Tensor>& delta,
                                                const std::optional<at::Tensor>& delta_bias,
                                                const at::Tensor& weight, const at::Tensor& bias,
                                                at::ScalarType dtype) {
    static const auto op = dispatched<ForwardSignature>("layer_norm_rows");
    const BelowAutograd below;
    const auto [own_sum, normalized, mean, rstd] =
        op.call(residual, delta, delta_bias, weight, bias, dtype == at::kBFloat16);
    const at::Tensor sum = delta ? own_sum : residual;
    context->save_for_backward({sum, mean, rstd, weight, bias});
    context->saved_data["adds"] = delta.has_value();
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    context->set_materialize_grads(false);
    return {normalized, sum};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const bool adds = context->saved_data["adds"].toBool();
    const at::Tensor& sum_upstream = upstream[1];
    if (!upstream[0].defined()) return of_sum_alone(sum_upstream, context);
    static const auto op = dispatched<BackwardSignature>("layer_norm_rows_backward");
    const BelowAutograd below;
    const auto [residual, delta, delta_bias, weight, bias] =
        op.call(upstream[0], if_defined(sum_upstream), saved[0], saved[1], saved[2], saved[3],
                saved[4], adds);
    if (!adds) return {residual, {}, {}, weight, bias, {}};
    const bool same = upstream[0].scalar_type() == at::kFloat;
    return {residual, same ? residual : delta, delta_bias, weight, bias, {}};
  }

 private:
  /// The normalized values were not used: only the sum's gradient flows.
  static torch::autograd::variable_list of_sum_alone(const at::Tensor& upstream,
                                                     torch::autograd::AutogradContext* context) {
    if (!upstream.defined()) return {{}, {}, {}, {}, {}, {}};
    if (!context->saved_data["adds"].toBool()) return {upstream, {}, {}, {}, {}, {}};
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {upstream, upstream.to(dtype), upstream.sum(0).to(dtype), {}, {}, {}};
  }
};

void check_arguments(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     at::ScalarType dtype) {
  if (x.dim() != 2 || x.scalar_type() != at::kFloat) {
    fail("layer norm: x must be float32 [rows, width]");
  }
  const std::int64_t width = x.size(1);
  for (const at::Tensor* vector : {&weight, &bias}) {
    if (vector->dim() != 1 || vector->size(0) != width || vector->scalar_type() != at::kFloat) {
      fail("layer norm: weight and bias must be float32 [{}]", width);
    }
    if (vector->device() != x.device()) fail("layer norm: all tensors must be on one device");
  }
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    fail("layer norm: the result is float32 or bfloat16, not {}", c10::toString(dtype));
  }
  if (x.is_cuda() && (width % 4 != 0 || width > kMostNormWidth)) {
    fail("layer norm: width {} must be a multiple of 4 and at most {}", width, kMostNormWidth);
  }
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> layer_norm_cast(const at::Tensor& x, const at::Tensor& weight,
                                                   const at::Tensor& bias, at::ScalarType dtype) {
  check_arguments(x, weight, bias, dtype);
  const std::optional<at::Tensor> none;
  const auto out = LayerNorm::apply(x, none, none, weight, bias, dtype);
  return {out[1], out[0]};
}

std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& residual,
                                                  const at::Tensor& delta,
                                                  const at::Tensor& delta_bias,
                                                  const at::Tensor& weight,
                                                  const at::Tensor& bias) {
  check_arguments(residual, weight, bias, delta.scalar_type());
  if (delta.sizes() != residual.sizes() || delta_bias.dim() != 1 ||
      delta_bias.size(0) != residual.size(1) || delta_bias.scalar_type() != delta.scalar_type() ||
      delta.device() != residual.device() || delta_bias.device() != residual.device()) {
    fail("add_layer_norm: delta must be [{}, {}] and delta_bias [{}] of its dtype and device",
         residual.size(0), residual.size(1), residual.size(1));
  }
  const auto out =
      LayerNorm::apply(residual, std::optional<at::Tensor>(delta),
                       std::optional<at::Tensor>(delta_bias), weight, bias, delta.scalar_type());
  return {out[1], out[0]};
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "layer_norm_rows(Tensor residual, Tensor? delta, Tensor? delta_bias, Tensor weight, "
      "Tensor bias, bool bf16) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "layer_norm_rows_backward(Tensor upstream, Tensor? sum_upstream, Tensor sum, Tensor mean, "
      "Tensor rstd, Tensor weight, Tensor bias, bool adds) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("layer_norm_rows", &forward_op<false>);
  m.impl("layer_norm_rows_backward", &backward_op<false>);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("layer_norm_rows", &forward_op<true>);
  m.impl("layer_norm_rows_backward", &backward_op<true>);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("layer_norm_rows", &forward_shapes);
  m.impl("layer_norm_rows_backward", &backward_shapes);
}

}  // namespace trainsuite
