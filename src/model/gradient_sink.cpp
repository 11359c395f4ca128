#include "model/gradient_sink.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

namespace trainsuite {

GradientSink::Sum sum_or_own(const GradientTarget& target, const at::Tensor& like,
                             at::Tensor& own) {
  if (target.sink) return target.sum();
  own = at::empty_like(like);
  return {own, true};
}

at::Tensor product_gradient(const GradientTarget& target, const at::Tensor& left,
                            const at::Tensor& right) {
  if (!target.sink) return at::mm(left, right);
  add_product(target.sum(), left, right);
  return {};
}

void add_product(const GradientSink::Sum& sum, const at::Tensor& left, const at::Tensor& right,
                 double scale) {
  at::Tensor value = sum.value;
  const int beta = sum.fresh ? 0 : 1;
  if (value.scalar_type() == left.scalar_type()) {
    at::addmm_out(value, value, left, right, beta, scale);
  } else if (value.is_cuda()) {  // bf16 factors, fp32 sum
    at::addmm_out(value, value, left, right, value.scalar_type(), beta, scale);
  } else {  // CPUs have no such kernel
    if (sum.fresh) value.zero_();
    value.add_(at::mm(left, right), scale);
  }
}

void add_row_sum(const GradientSink::Sum& sum, const at::Tensor& x) {
  at::Tensor value = sum.value;
  if (sum.fresh) {
    at::sum_out(value, x, 0, /*keepdim=*/false, value.scalar_type());
  } else {
    value.add_(at::sum(x, 0, /*keepdim=*/false, value.scalar_type()));
  }
}

}  // namespace trainsuite
