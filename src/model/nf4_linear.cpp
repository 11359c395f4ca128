// A quantized matrix and its product are one op each way: tracing that saw the matrix would keep it
// for backward, and dequantizing it again is the point of its storage.
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "model/dispatched.h"
#include "model/linear_product.h"

namespace trainsuite {
namespace {

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor nf4_linear(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& absmax,
                      at::IntArrayRef shape, const std::optional<at::Tensor>& bias) {
  return product(x, nf4_dequantize({codes, absmax}, shape, x.scalar_type()),
                 bias.value_or(at::Tensor()));
}

at::Tensor nf4_linear_shape(const at::Tensor& x, const at::Tensor&, const at::Tensor&,
                            at::IntArrayRef shape, const std::optional<at::Tensor>&) {
  return at::empty({x.size(0), shape[0]}, x.options());
}

at::Tensor nf4_linear_backward(const at::Tensor& g, const at::Tensor& codes,
                               const at::Tensor& absmax, at::IntArrayRef shape) {
  return at::mm(g, nf4_dequantize({codes, absmax}, shape, g.scalar_type()));
}

at::Tensor nf4_linear_backward_shape(const at::Tensor& g, const at::Tensor&, const at::Tensor&,
                                     at::IntArrayRef shape) {
  return at::empty({g.size(0), shape[1]}, g.options());
}

}  // namespace

at::Tensor frozen_product(const Linear& linear, const at::Tensor& x) {
  if (linear.weight.defined()) return product(x, linear.weight, linear.bias);
  static const auto op = dispatched<decltype(nf4_linear)>("nf4_linear");
  return op.call(x, linear.quantized.codes, nf4_maxima(linear.quantized), linear.shape,
                 linear.bias.defined() ? std::optional(linear.bias) : std::nullopt);
}

at::Tensor frozen_product_backward(const Linear& linear, const at::Tensor& upstream) {
  if (linear.weight.defined()) return at::mm(upstream, linear.weight);
  static const auto op = dispatched<decltype(nf4_linear_backward)>("nf4_linear_backward");
  return op.call(upstream, linear.quantized.codes, nf4_maxima(linear.quantized), linear.shape);
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def(
      "nf4_linear(Tensor x, Tensor codes, Tensor absmax, int[] shape, Tensor? bias=None) "
      "-> Tensor");
  m.def("nf4_linear_backward(Tensor g, Tensor codes, Tensor absmax, int[] shape) -> Tensor");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("nf4_linear", &nf4_linear);
  m.impl("nf4_linear_backward", &nf4_linear_backward);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("nf4_linear", &nf4_linear);
  m.impl("nf4_linear_backward", &nf4_linear_backward);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("nf4_linear", &nf4_linear_shape);
  m.impl("nf4_linear_backward", &nf4_linear_backward_shape);
}

}  // namespace trainsuite
