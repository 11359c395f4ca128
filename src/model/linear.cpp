#include "model/linear.h"

#include <ATen/ops/linear.h>

namespace trainsuite {

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  return at::linear(x, linear.weight, linear.bias);
}

at::ScalarType input_dtype(const Linear& linear) { return linear.weight.scalar_type(); }

}  // namespace trainsuite
