#include "model/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/aligned.h"
#include "model/column_sums_kernel.h"
#include "model/dispatched.h"
#include "model/rms_norm_kernel.h"

namespace trainsuite {
namespace {

/// Whether the kernel takes it; else operators do, on CPUs and for the widest models.
bool has_kernel(const at::Tensor& x) {
  return x.is_cuda() && x.size(1) % 8 == 0 && x.size(1) <= kMostRmsWidth;
}

bool is_bf16(at::ScalarType dtype) { return dtype == at::kBFloat16; }

RmsNorm by_operators(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                     double epsilon, at::ScalarType dtype) {
  const at::Tensor sum = delta.defined() ? residual + delta : residual;
  const at::Tensor wide = sum.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return {sum, (wide * (rstd * weight.to(at::kFloat))).to(dtype), rstd};
}

RmsNorm by_kernel(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                  double epsilon, at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(residual.device());
  const bool adds = delta.defined();
  const RmsNorm out{adds ? at::empty_like(residual) : residual,
                    at::empty(residual.sizes(), residual.options().dtype(dtype)),
                    at::empty({residual.size(0), 1}, residual.options().dtype(at::kFloat))};
  RmsForward work{};
  work.rows = residual.size(0), work.width = residual.size(1);
  work.wide_bf16 = is_bf16(residual.scalar_type()), work.bf16 = is_bf16(dtype);
  work.epsilon = static_cast<float>(epsilon);
  work.residual = residual.const_data_ptr();
  work.delta = adds ? delta.const_data_ptr() : nullptr;
  work.weight = weight.const_data_ptr();
  work.sum = adds ? out.sum.mutable_data_ptr() : nullptr;
  work.normalized = out.normalized.mutable_data_ptr();
  work.rstd = out.rstd.mutable_data_ptr<float>();
  check_cuda(launch_rms_forward(work, c10::cuda::getCurrentCUDAStream()), "RMSNorm kernel");
  return out;
}

RmsNormGradients backward_by_operators(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                                       const at::Tensor& sum, const at::Tensor& rstd,
                                       const at::Tensor& weight, const RmsNormWants& wants) {
  const at::Tensor standard = sum.to(at::kFloat) * rstd, wide_weight = weight.to(at::kFloat);
  const at::Tensor wide = upstream.to(at::kFloat), scaled = wide * wide_weight;
  at::Tensor gradient = rstd * (scaled - standard * (scaled * standard).mean(-1, /*keepdim=*/true));
  if (sum_upstream.defined()) gradient = gradient + sum_upstream;
  RmsNormGradients out;
  out.residual = gradient.to(sum.scalar_type());
  if (wants.delta) out.delta = gradient.to(upstream.scalar_type());
  if (wants.normalized) {
    out.normalized = (sum.to(at::kFloat) * (rstd * wide_weight)).to(upstream.scalar_type());
  }
  if (!wants.weight) return out;
  if (wants.target.sink) {
    add_row_sum(wants.target.sum(), wide * standard);
  } else {
    out.weight = (wide * standard).sum(0).to(weight.scalar_type());
  }
  return out;
}

/// The weight's gradient from the blocks' partial sums.
void sum_partials(const at::Tensor& partials, const RmsNormWants& wants, const at::Tensor& weight,
                  RmsNormGradients& out) {
  const GradientSink::Sum sum = sum_or_own(wants.target, weight, out.weight);
  ColumnSums sums{};
  sums.partials = partials.const_data_ptr<float>();
  sums.rows = partials.size(0), sums.width = partials.size(1), sums.segments = 1;
  sums.out[0] = sum.value.mutable_data_ptr(), sums.bf16[0] = is_bf16(sum.value.scalar_type());
  sums.add = !sum.fresh;
  check_cuda(launch_column_sums(sums, c10::cuda::getCurrentCUDAStream()),
             "RMSNorm column sums kernel");
}

RmsNormGradients backward_by_kernel(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                                    const at::Tensor& sum, const at::Tensor& rstd,
                                    const at::Tensor& weight, const RmsNormWants& wants) {
  const c10::cuda::CUDAGuard guard(sum.device());
  RmsNormGradients out;
  out.residual = at::empty_like(sum);
  const bool same = sum.scalar_type() == upstream.scalar_type();
  if (wants.delta) out.delta = same ? out.residual : at::empty_like(upstream);
  if (wants.normalized) out.normalized = at::empty_like(upstream);
  at::Tensor partials;
  if (wants.weight) {
    partials = at::empty({rms_backward_blocks(sum.size(0)), sum.size(1)}, rstd.options());
  }
  RmsBackward work{};
  work.rows = sum.size(0), work.width = sum.size(1);
  work.wide_bf16 = is_bf16(sum.scalar_type()), work.bf16 = is_bf16(upstream.scalar_type());
  work.upstream = upstream.const_data_ptr();
  work.sum_upstream = sum_upstream.defined() ? sum_upstream.const_data_ptr() : nullptr;
  work.sum = sum.const_data_ptr();
  work.rstd = rstd.const_data_ptr<float>();
  work.weight = weight.const_data_ptr();
  work.sum_gradient = out.residual.mutable_data_ptr();
  work.delta_gradient = wants.delta && !same ? out.delta.mutable_data_ptr() : nullptr;
  work.normalized = wants.normalized ? out.normalized.mutable_data_ptr() : nullptr;
  work.partials = wants.weight ? partials.mutable_data_ptr<float>() : nullptr;
  check_cuda(launch_rms_backward(work, c10::cuda::getCurrentCUDAStream()),
             "RMSNorm backward kernel");
  if (wants.weight) sum_partials(partials, wants, weight, out);
  return out;
}

RmsNorm forward(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                double epsilon, at::ScalarType dtype) {
  if (!has_kernel(residual)) return by_operators(residual, delta, weight, epsilon, dtype);
  return by_kernel(aligned(residual), delta.defined() ? aligned(delta) : delta, aligned(weight),
                   epsilon, dtype);
}

RmsNormGradients backward(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                          const at::Tensor& sum, const at::Tensor& rstd, const at::Tensor& weight,
                          const RmsNormWants& wants) {
  if (!has_kernel(sum)) {
    return backward_by_operators(upstream, sum_upstream, sum, rstd, weight, wants);
  }
  return backward_by_kernel(aligned(upstream),
                            sum_upstream.defined() ? aligned(sum_upstream) : sum_upstream,
                            aligned(sum), rstd, aligned(weight), wants);
}

// As operators. The sum is the residual where nothing is added, the delta's gradient the
// residual's where both have one dtype; operators may not return the same tensor twice.

using ForwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using ForwardSignature = ForwardResult(const at::Tensor&, const std::optional<at::Tensor>&,
                                       const at::Tensor&, double, bool);

ForwardResult forward_op(const at::Tensor& residual, const std::optional<at::Tensor>& delta,
                         const at::Tensor& weight, double epsilon, bool bf16) {
  const RmsNorm out = forward(residual, delta.value_or(at::Tensor()), weight, epsilon,
                              bf16 ? at::kBFloat16 : at::kFloat);
  return {delta ? out.sum : nothing_like(residual), out.normalized, out.rstd};
}

ForwardResult forward_shapes(const at::Tensor& residual, const std::optional<at::Tensor>& delta,
                             const at::Tensor&, double, bool bf16) {
  const auto dtype = bf16 ? at::kBFloat16 : at::kFloat;
  return {shaped_like(residual, delta.has_value()),
          at::empty(residual.sizes(), residual.options().dtype(dtype)),
          at::empty({residual.size(0), 1}, residual.options().dtype(at::kFloat))};
}

using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using BackwardSignature = BackwardResult(const at::Tensor&, const std::optional<at::Tensor>&,
                                         const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                         bool, bool, bool);

BackwardResult backward_op(const at::Tensor& upstream,
                           const std::optional<at::Tensor>& sum_upstream, const at::Tensor& sum,
                           const at::Tensor& rstd, const at::Tensor& weight, bool wants_delta,
                           bool wants_weight, bool wants_normalized) {
  const bool own_delta = wants_delta && sum.scalar_type() != upstream.scalar_type();
  const RmsNormGradients out = backward(upstream, sum_upstream.value_or(at::Tensor()), sum, rstd,
                                        weight, {own_delta, wants_weight, wants_normalized});
  return {out.residual, own_delta ? out.delta : nothing_like(upstream),
          wants_weight ? out.weight : nothing_like(weight),
          wants_normalized ? out.normalized : nothing_like(upstream)};
}

BackwardResult backward_shapes(const at::Tensor& upstream, const std::optional<at::Tensor>&,
                               const at::Tensor& sum, const at::Tensor&, const at::Tensor& weight,
                               bool wants_delta, bool wants_weight, bool wants_normalized) {
  const bool own_delta = wants_delta && sum.scalar_type() != upstream.scalar_type();
  return {shaped_like(sum), shaped_like(upstream, own_delta), shaped_like(weight, wants_weight),
          shaped_like(upstream, wants_normalized)};
}

}  // namespace

RmsNorm rms_norm(const at::Tensor& residual, const at::Tensor& delta, const at::Tensor& weight,
                 double epsilon, at::ScalarType dtype) {
  const bool fits =
      !delta.defined() || (delta.sizes() == residual.sizes() && delta.scalar_type() == dtype);
  if (residual.dim() != 2 || !fits || weight.numel() != residual.size(1) ||
      weight.scalar_type() != residual.scalar_type()) {
    fail("rms_norm: residual and delta must be [tokens, width] and weight [width], of its dtype");
  }
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    fail("rms_norm: the result is float32 or bfloat16, not {}", c10::toString(dtype));
  }
  static const auto op = dispatched<ForwardSignature>("rms_norm_rows");
  const BelowAutograd below;
  const auto [sum, normalized, rstd] =
      op.call(residual, if_defined(delta), weight, epsilon, dtype == at::kBFloat16);
  return {delta.defined() ? sum : residual, normalized, rstd};
}

RmsNormGradients rms_norm_backward(const at::Tensor& upstream, const at::Tensor& sum_upstream,
                                   const at::Tensor& sum, const at::Tensor& rstd,
                                   const at::Tensor& weight, const RmsNormWants& wants) {
  if (wants.target.sink) return backward(upstream, sum_upstream, sum, rstd, weight, wants);
  static const auto op = dispatched<BackwardSignature>("rms_norm_rows_backward");
  const BelowAutograd below;
  const auto [residual, delta, weight_gradient, normalized] =
      op.call(upstream, if_defined(sum_upstream), sum, rstd, weight, wants.delta, wants.weight,
              wants.normalized);
  const bool same = sum.scalar_type() == upstream.scalar_type();
  return {residual, or_undefined(same ? residual : delta, wants.delta),
          or_undefined(weight_gradient, wants.weight), or_undefined(normalized, wants.normalized)};
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "rms_norm_rows(Tensor residual, Tensor? delta, Tensor weight, float epsilon, bool bf16) "
      "-> (Tensor, Tensor, Tensor)");
  m.def(
      "rms_norm_rows_backward(Tensor upstream, Tensor? sum_upstream, Tensor sum, Tensor rstd, "
      "Tensor weight, bool wants_delta, bool wants_weight, bool wants_normalized) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("rms_norm_rows", &forward_op);
  m.impl("rms_norm_rows_backward", &backward_op);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("rms_norm_rows", &forward_op);
  m.impl("rms_norm_rows_backward", &backward_op);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("rms_norm_rows", &forward_shapes);
  m.impl("rms_norm_rows_backward", &backward_shapes);
}

}  // namespace trainsuite
