#include "model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/aligned.h"
#include "model/dispatched.h"
#include "model/rotary_kernel.h"

namespace trainsuite {
namespace {

struct Angles {
  at::Tensor cosine, sine;
  bool inverse;
};

/// x [tokens, heads, width] rotated, in fp32.
at::Tensor turned(const at::Tensor& x, const Angles& angles) {
  const std::int64_t rows = angles.cosine.size(0), half = x.size(2) / 2;
  const at::Tensor by_row = x.reshape({-1, rows, x.size(1), x.size(2)}).to(at::kFloat);
  const at::Tensor cosine = angles.cosine.view({1, rows, 1, half});
  const at::Tensor sine =
      angles.inverse ? -angles.sine.view({1, rows, 1, half}) : angles.sine.view({1, rows, 1, half});
  const std::vector<at::Tensor> parts = by_row.chunk(2, -1);
  return at::cat({parts[0] * cosine - parts[1] * sine, parts[1] * cosine + parts[0] * sine}, -1)
      .view(x.sizes());
}

/// As the kernel reads it: values of a token side by side.
at::Tensor by_token(const at::Tensor& x) {
  const bool fits = x.stride(2) == 1 && x.stride(1) == x.size(2) && x.stride(0) % 8 == 0 &&
                    is_aligned(x.const_data_ptr());
  return fits ? x : x.contiguous();
}

void by_kernel(const QueryKeyValue& in, const Angles& angles, const at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  const at::Tensor query = by_token(in.query), key = by_token(in.key), value = by_token(in.value);
  const at::Tensor cosine = angles.cosine.contiguous(), sine = angles.sine.contiguous();
  Rotary work{};
  work.tokens = query.size(0), work.heads = query.size(1), work.key_value_heads = key.size(1);
  work.head_width = query.size(2), work.table_rows = cosine.size(0);
  work.bf16 = out.scalar_type() == at::kBFloat16, work.inverse = angles.inverse;
  work.query = query.const_data_ptr(), work.query_stride = query.stride(0);
  work.key = key.const_data_ptr(), work.key_stride = key.stride(0);
  work.value = value.const_data_ptr(), work.value_stride = value.stride(0);
  work.cosine = cosine.const_data_ptr<float>(), work.sine = sine.const_data_ptr<float>();
  work.out = out.mutable_data_ptr();
  check_cuda(launch_rotary(work, c10::cuda::getCurrentCUDAStream()), "rotary kernel");
}

at::Tensor empty_joined(const QueryKeyValue& in) {
  const std::int64_t heads = in.query.size(1) + 2 * in.key.size(1);
  return at::empty({in.query.size(0), heads, in.query.size(2)}, in.query.options());
}

at::Tensor joined_op(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& cosine, const at::Tensor& sine, bool inverse) {
  const QueryKeyValue in{query, key, value};
  const Angles angles{cosine, sine, inverse};
  if (!query.is_cuda() || query.size(2) % 8 != 0) {
    const at::ScalarType dtype = query.scalar_type();
    return at::cat({turned(query, angles).to(dtype), turned(key, angles).to(dtype), value}, 1);
  }
  const at::Tensor out = empty_joined(in);
  by_kernel(in, angles, out);
  return out;
}

at::Tensor joined_shapes(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const at::Tensor&, const at::Tensor&, bool) {
  return empty_joined({query, key, value});
}

/// All heads side by side, [tokens, heads, width]; queries and keys rotated.
at::Tensor joined(const QueryKeyValue& in, const Angles& angles) {
  static const auto op =
      dispatched<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, const at::Tensor&, bool)>("rotary_joined");
  const BelowAutograd below;
  return op.call(in.query, in.key, in.value, angles.cosine, angles.sine, angles.inverse);
}

QueryKeyValue parts_of(const at::Tensor& joint, Heads heads) {
  return {joint.narrow(1, 0, heads.query), joint.narrow(1, heads.query, heads.key_value),
          joint.narrow(1, heads.query + heads.key_value, heads.key_value)};
}

class RotarySplit : public torch::autograd::Function<RotarySplit> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const at::Tensor& qkv, const at::Tensor& cosine,
                                                const at::Tensor& sine, Heads heads) {
    const BelowAutograd plain_views;
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    context->set_materialize_grads(false);
    const at::Tensor by_head =
        qkv.view({qkv.size(0), heads.query + 2 * heads.key_value, heads.width});
    const at::Tensor out = joined(parts_of(by_head, heads), {cosine, sine, false});
    const QueryKeyValue parts = parts_of(out, heads);
    return {parts.query, parts.key, parts.value};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    for (const at::Tensor& gradient : upstream) {
      if (!gradient.defined()) fail("rotary_split: queries, keys and values must all be used");
    }
    const at::Tensor out = joined(
        {upstream[0], upstream[1], upstream[2]},
        {context->saved_data["cosine"].toTensor(), context->saved_data["sine"].toTensor(), true});
    return {out.view({out.size(0), -1}), {}, {}, {}};
  }
};

}  // namespace

QueryKeyValue rotary_split(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine,
                           Heads heads) {
  if (qkv.dim() != 2 || qkv.size(1) != (heads.query + 2 * heads.key_value) * heads.width ||
      cosine.size(0) < 1 || qkv.size(0) % cosine.size(0) != 0) {
    fail("rotary_split: qkv must be [tokens, {}], its tokens a multiple of the angles' {}",
         (heads.query + 2 * heads.key_value) * heads.width, cosine.size(0));
  }
  const auto out = RotarySplit::apply(qkv.contiguous(), cosine, sine, heads);
  return {out[0], out[1], out[2]};
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "rotary_joined(Tensor query, Tensor key, Tensor value, Tensor cosine, Tensor sine, "
      "bool inverse) -> Tensor");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) { m.impl("rotary_joined", &joined_op); }
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) { m.impl("rotary_joined", &joined_op); }
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) { m.impl("rotary_joined", &joined_shapes); }

}  // namespace trainsuite
