#include "model/linear.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <numeric>

#include "core/error.h"
#include "model/linear_product.h"
#include "model/rms_norm.h"
#include "model/swiglu.h"

namespace trainsuite {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What the layer's input is computed from, in forward and again in backward.
enum class Source { input, norm, swiglu };

/// Carried from forward to backward beside the activations; holds weights alone.
struct Layer : torch::CustomClassHolder {
  Source source = Source::input;
  Linear linear;
  Norm norm{};
  bool adds = false;  // a delta comes with the residual
  bool trains_weight = false, trains_bias = false, trains_norm = false;
  bool needs_input() const { return trains_weight || linear.adapters.a.defined(); }
};

struct Input {
  at::Tensor x, sum;
  variable_list kept;
};

Input input_of(const Layer& layer, at::TensorList from) {
  if (layer.source == Source::input) {
    return {from[0], {}, {layer.needs_input() ? from[0] : at::Tensor()}};
  }
  if (layer.source == Source::swiglu) return {swiglu(from[0]), {}, {from[0]}};
  const RmsNorm made = rms_norm(from[0], layer.adds ? from[1] : at::Tensor(), layer.norm.weight,
                                layer.norm.epsilon, input_dtype(layer.linear));
  return {made.normalized, made.sum, {made.sum, made.rstd}};
}

/// Gradients of what the input came from, in order, and the input again where it is needed.
struct InputBack {
  variable_list gradients;
  at::Tensor x;
};

InputBack norm_back(const Layer& layer, const variable_list& kept, const at::Tensor& x_gradient,
                    const at::Tensor& sum_upstream) {
  if (!x_gradient.defined()) {  // nothing before it trains
    const RmsNorm again =
        rms_norm(kept[0], {}, layer.norm.weight, layer.norm.epsilon, input_dtype(layer.linear));
    return {{{}, {}}, again.normalized};
  }
  const RmsNormGradients out =
      rms_norm_backward(x_gradient, sum_upstream, kept[0], kept[1], layer.norm.weight,
                        {layer.adds, layer.trains_norm, layer.needs_input(), layer.norm.target});
  if (!layer.adds) return {{out.residual, out.weight}, out.normalized};
  return {{out.residual, out.delta, out.weight}, out.normalized};
}

InputBack input_back(const Layer& layer, const variable_list& kept, const at::Tensor& x_gradient,
                     const at::Tensor& sum_upstream) {
  if (layer.source == Source::norm) return norm_back(layer, kept, x_gradient, sum_upstream);
  if (layer.source == Source::input) return {{x_gradient}, kept[0]};
  if (!x_gradient.defined()) return {{{}}, swiglu(kept[0])};
  const SwigluGradients out = swiglu_backward(x_gradient, kept[0], layer.needs_input());
  return {{out.gate_up}, out.activation};
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
 public:
  /// `inputs`: what the layer's input comes from, then what trains of weight, bias, A, B.
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Layer>& layer) {
    const Input input = input_of(*layer, inputs);
    const LinearProduct product = linear_product(layer->linear, input.x);
    variable_list kept = input.kept;
    kept.push_back(product.inner);
    context->save_for_backward(kept);
    context->saved_data["layer"] = at::IValue::make_capsule(layer);
    context->set_materialize_grads(false);
    // Without a delta the sum is the residual: passed through, so that what else uses it hands its
    // gradient in here, where the kernel adds it.
    if (layer->source == Source::norm) return {product.y, layer->adds ? input.sum : inputs[0]};
    return {product.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto holder = context->saved_data["layer"].toCapsule();
    const auto& layer = *static_cast<const Layer*>(holder.get());
    const Linear& linear = layer.linear;
    const variable_list kept = context->get_saved_variables();
    if (!upstream[0].defined()) fail("a linear layer's output was not used, its norm's sum was");
    const at::Tensor g = upstream[0].contiguous();
    const bool wants_x = context->needs_input_grad(0) || layer.adds || layer.trains_norm;
    const LinearInputGradients of_input = linear_input_gradients(linear, g, kept.back(), wants_x);
    const InputBack back = input_back(layer, kept, of_input.x,
                                      layer.source == Source::norm ? upstream[1] : at::Tensor());
    const LinearWeightGradients of_weight =
        linear_weight_gradients(linear, g, back.x, of_input.inner, layer.trains_weight);
    variable_list gradients = back.gradients;
    if (layer.trains_weight) gradients.push_back(of_weight.weight);
    if (layer.trains_bias) gradients.push_back(bias_gradient(linear, g));
    if (linear.adapters.a.defined()) {
      gradients.push_back(of_weight.a);
      gradients.push_back(of_input.b);
    }
    gradients.emplace_back();  // of `layer`
    return gradients;
  }

 private:
  static at::Tensor bias_gradient(const Linear& linear, const at::Tensor& g) {
    if (!linear.bias_target.sink) return g.sum(0);
    add_row_sum(linear.bias_target.sum(), g);
    return {};
  }
};

void check_adapters(const Linear& linear, std::int64_t in) {
  const Adapters& adapters = linear.adapters;
  if (!adapters.a.defined()) return;
  const std::int64_t out = linear.weight.defined() ? linear.weight.size(0) : linear.shape.at(0);
  const auto layers = static_cast<std::int64_t>(adapters.rows.size());
  if (adapters.a.dim() != 2 || adapters.b.dim() != 2 ||
      adapters.a.size(0) != layers * adapters.b.size(1) || adapters.a.size(1) != in ||
      adapters.b.size(0) != out ||
      std::accumulate(adapters.rows.begin(), adapters.rows.end(), std::int64_t{0}) != out) {
    fail("adapters: a must be [{} x rank, {}] and b [{}, rank], with rows that add up to {}",
         layers, in, out, out);
  }
}

variable_list run(c10::intrusive_ptr<Layer> layer, std::vector<at::Tensor> inputs) {
  const Linear& linear = layer->linear;
  layer->trains_weight = linear.weight.defined() && linear.weight.requires_grad();
  layer->trains_bias = linear.bias.defined() && linear.bias.requires_grad();
  if (layer->trains_weight) inputs.push_back(linear.weight);
  if (layer->trains_bias) inputs.push_back(linear.bias);
  if (linear.adapters.a.defined()) {
    inputs.push_back(linear.adapters.a);
    inputs.push_back(linear.adapters.b);
  }
  return LinearFunction::apply(at::TensorList(inputs), layer);
}

}  // namespace

at::Tensor apply(const Linear& linear, const at::Tensor& x) {
  check_adapters(linear, x.size(1));
  if (linear.weight.defined() && !linear.adapters.a.defined() && !linear.weight_target.sink) {
    return at::linear(x, linear.weight, linear.bias);
  }
  auto layer = c10::make_intrusive<Layer>();
  layer->linear = linear;
  return run(std::move(layer), {x})[0];
}

NormLinear norm_linear(const at::Tensor& residual, const at::Tensor& delta, const Norm& norm,
                       const Linear& linear) {
  check_adapters(linear, residual.size(1));
  auto layer = c10::make_intrusive<Layer>();
  layer->source = Source::norm;
  layer->linear = linear;
  layer->norm = norm;
  layer->adds = delta.defined();
  layer->trains_norm = norm.weight.requires_grad();
  std::vector<at::Tensor> inputs{residual};
  if (delta.defined()) inputs.push_back(delta);
  inputs.push_back(norm.weight);
  const variable_list out = run(std::move(layer), std::move(inputs));
  return {out[0], out[1]};
}

at::Tensor swiglu_linear(const at::Tensor& gate_up, const Linear& linear) {
  check_adapters(linear, gate_up.size(1) / 2);
  auto layer = c10::make_intrusive<Layer>();
  layer->source = Source::swiglu;
  layer->linear = linear;
  return run(std::move(layer), {gate_up})[0];
}

at::ScalarType input_dtype(const Linear& linear) {
  return linear.weight.defined() ? linear.weight.scalar_type() : linear.compute_type;
}

}  // namespace trainsuite
