#include "model/linear_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include "model/adapter_dropout.h"

namespace trainsuite {
namespace {

/// One layer's share of a joint one: its columns of y and of the inner activations.
struct Part {
  std::int64_t index, first, rows;
};

std::vector<Part> parts_of(const std::vector<std::int64_t>& rows) {
  std::vector<Part> parts;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    parts.push_back({static_cast<std::int64_t>(parts.size()), first, count});
    first += count;
  }
  return parts;
}

/// out = scale x (left right), without reading out.
void product_into(at::Tensor out, const at::Tensor& left, const at::Tensor& right, double scale) {
  at::addmm_out(out, out, left, right, /*beta=*/0, /*alpha=*/scale);
}

}  // namespace

LinearProduct linear_product(const Linear& linear, const at::Tensor& x) {
  LinearProduct out;
  out.y = frozen_product(linear, x);
  const Adapters& adapters = linear.adapters;
  if (!adapters.a.defined()) return out;
  out.inner = at::mm(dropped_out(x, adapters.dropout), adapters.a.t());
  const std::int64_t rank = adapters.b.size(1);
  for (const Part& part : parts_of(adapters.rows)) {
    out.y.narrow(1, part.first, part.rows)
        .addmm_(out.inner.narrow(1, part.index * rank, rank),
                adapters.b.narrow(0, part.first, part.rows).t(), /*beta=*/1, adapters.scale);
  }
  return out;
}

LinearInputGradients linear_input_gradients(const Linear& linear, const at::Tensor& upstream,
                                            const at::Tensor& inner, bool wants_x) {
  const Adapters& adapters = linear.adapters;
  LinearInputGradients out;
  if (adapters.a.defined()) {
    const std::int64_t rank = adapters.b.size(1);
    out.inner = at::empty_like(inner);
    const GradientSink::Sum b = sum_or_own(adapters.b_target, adapters.b, out.b);
    for (const Part& part : parts_of(adapters.rows)) {
      const at::Tensor own = upstream.narrow(1, part.first, part.rows);
      product_into(out.inner.narrow(1, part.index * rank, rank), own,
                   adapters.b.narrow(0, part.first, part.rows), adapters.scale);
      add_product({b.value.narrow(0, part.first, part.rows), b.fresh}, own.t(),
                  inner.narrow(1, part.index * rank, rank), adapters.scale);
    }
  }
  if (!wants_x) return out;
  out.x = frozen_product_backward(linear, upstream);
  if (!adapters.a.defined()) return out;
  if (adapters.dropout.probability == 0) {
    out.x.addmm_(out.inner, adapters.a);
  } else {  // x's gradient goes the way that x came
    out.x.add_(dropped_out(at::mm(out.inner, adapters.a), adapters.dropout));
  }
  return out;
}

LinearWeightGradients linear_weight_gradients(const Linear& linear, const at::Tensor& upstream,
                                              const at::Tensor& x, const at::Tensor& inner_gradient,
                                              bool wants_weight) {
  LinearWeightGradients out;
  if (wants_weight) out.weight = product_gradient(linear.weight_target, upstream.t(), x);
  if (inner_gradient.defined()) {
    const Adapters& adapters = linear.adapters;
    out.a =
        product_gradient(adapters.a_target, inner_gradient.t(), dropped_out(x, adapters.dropout));
  }
  return out;
}

}  // namespace trainsuite
