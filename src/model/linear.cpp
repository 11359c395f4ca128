#include "model/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <numeric>
#include <optional>

#include "core/error.h"

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

// A quantized matrix and its product are one op each way: tracing that saw the matrix would keep it
// for backward, and dequantizing it again is the point of its storage.
at::Tensor frozen_product(const at::Tensor& x, const Linear& linear) {
  if (linear.weight.defined()) return product(x, linear.weight, linear.bias);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("trainsuite::nf4_linear", "")
                             .typed<decltype(nf4_linear)>();
  return op.call(x, linear.quantized.codes, linear.quantized.absmax, linear.shape,
                 linear.bias.defined() ? std::optional(linear.bias) : std::nullopt);
}

at::Tensor frozen_product_backward(const at::Tensor& g, const at::Tensor& weight,
                                   const Nf4& quantized, at::IntArrayRef shape) {
  if (weight.defined()) return at::mm(g, weight);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("trainsuite::nf4_linear_backward", "")
                             .typed<decltype(nf4_linear_backward)>();
  return op.call(g, quantized.codes, quantized.absmax, shape);
}

/// out = scale x (left right), without reading out.
void product_into(at::Tensor out, const at::Tensor& left, const at::Tensor& right, double scale) {
  at::addmm_out(out, out, left, right, /*beta=*/0, /*alpha=*/scale);
}

class FrozenLinear : public torch::autograd::Function<FrozenLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& given_a,
                            const std::optional<at::Tensor>& given_b, const Linear& linear) {
    const at::Tensor a = given_a.value_or(at::Tensor()), b = given_b.value_or(at::Tensor());
    at::Tensor y = frozen_product(x, linear);
    at::Tensor inner;
    if (a.defined()) {
      inner = at::mm(x, a.t());
      const std::int64_t rank = b.size(1);
      for (const Part& part : parts_of(linear.adapters.rows)) {
        y.narrow(1, part.first, part.rows)
            .addmm_(inner.narrow(1, part.index * rank, rank),
                    b.narrow(0, part.first, part.rows).t(), /*beta=*/1, linear.adapters.scale);
      }
    }
    context->save_for_backward({a.defined() ? x : at::Tensor(), a, b, inner, linear.weight,
                                linear.quantized.codes, linear.quantized.absmax});
    context->saved_data["shape"] = linear.shape;
    context->saved_data["rows"] = linear.adapters.rows;
    context->saved_data["scale"] = linear.adapters.scale;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor g = upstream[0].contiguous();
    const at::Tensor &x = saved[0], &a = saved[1], &b = saved[2];
    at::Tensor x_gradient, a_gradient, b_gradient, inner_gradient;
    if (a.defined()) {
      std::tie(inner_gradient, b_gradient) = adapter_gradients(*context, g, b, saved[3]);
      a_gradient = at::mm(inner_gradient.t(), x);
    }
    if (context->needs_input_grad(0)) {
      x_gradient = frozen_product_backward(g, saved[4], {saved[5], saved[6]},
                                           context->saved_data["shape"].toIntVector());
      if (a.defined()) x_gradient.addmm_(inner_gradient, a);
    }
    return {x_gradient, a_gradient, b_gradient, {}};
  }

 private:
  /// Of the inner activations [tokens, layers x rank] and of b.
  static std::pair<at::Tensor, at::Tensor> adapter_gradients(
      torch::autograd::AutogradContext& context, const at::Tensor& g, const at::Tensor& b,
      const at::Tensor& inner) {
    const double scale = context.saved_data["scale"].toDouble();
    const std::int64_t rank = b.size(1);
    const at::Tensor inner_gradient = at::empty_like(inner), b_gradient = at::empty_like(b);
    for (const Part& part : parts_of(context.saved_data["rows"].toIntVector())) {
      const at::Tensor own = g.narrow(1, part.first, part.rows);
      product_into(inner_gradient.narrow(1, part.index * rank, rank), own,
                   b.narrow(0, part.first, part.rows), scale);
      product_into(b_gradient.narrow(0, part.first, part.rows), own.t(),
                   inner.narrow(1, part.index * rank, rank), scale);
    }
    return {inner_gradient, b_gradient};
  }
};

void check_adapters(const Linear& linear, const at::Tensor& x) {
  const Adapters& adapters = linear.adapters;
  const std::int64_t out = linear.weight.defined() ? linear.weight.size(0) : linear.shape.at(0);
  const auto layers = static_cast<std::int64_t>(adapters.rows.size());
  if (adapters.a.dim() != 2 || adapters.b.dim() != 2 ||
      adapters.a.size(0) != layers * adapters.b.size(1) || adapters.a.size(1) != x.size(1) ||
      adapters.b.size(0) != out ||
      std::accumulate(adapters.rows.begin(), adapters.rows.end(), std::int64_t{0}) != out) {
    fail("adapters: a must be [{} x rank, {}] and b [{}, rank], with rows that add up to {}",
         layers, x.size(1), out, out);
  }
}

}  // namespace

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  if (linear.adapters.a.defined()) check_adapters(linear, x);
  if (linear.weight.defined() && !linear.adapters.a.defined()) {
    return at::linear(x, linear.weight, linear.bias);
  }
  const auto given = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return FrozenLinear::apply(x, given(linear.adapters.a), given(linear.adapters.b), linear);
}

at::ScalarType input_dtype(const Linear& linear) {
  return linear.weight.defined() ? linear.weight.scalar_type() : linear.compute_type;
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
