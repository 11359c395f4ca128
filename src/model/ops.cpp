// Registers the functions as torch ops: Python loads this library for tests and for the twins.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "model/attention.h"
#include "model/bias_gelu.h"
#include "model/counter_hash.h"
#include "model/gpt2.h"
#include "model/layer_norm.h"
#include "model/linear_cross_entropy.h"

namespace trainsuite {
namespace {

at::Tensor initial_parameter(at::IntArrayRef shape, std::int64_t seed, std::int64_t index,
                             double std, double constant, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  if (std == 0) return at::full(shape, constant, options);
  at::Tensor values = at::empty(shape, options);
  fill_initial_parameter_(values, seed, index, std);
  return values;
}

std::vector<at::Tensor> initial_parameters(const std::string& size, std::int64_t vocabulary,
                                           std::int64_t positions, std::int64_t seed,
                                           at::Device device) {
  std::vector<at::Tensor> tensors;
  for (const ParameterSpec& spec : gpt2_parameters(gpt2_config(size, vocabulary, positions))) {
    tensors.push_back(initial_parameter(spec.shape, seed, static_cast<std::int64_t>(tensors.size()),
                                        spec.init_std, spec.init_constant, device));
  }
  return tensors;
}

std::vector<std::string> parameter_names(const std::string& size) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : gpt2_parameters(gpt2_config(size, 1, 1))) {
    names.push_back(spec.name);
  }
  return names;
}

/// Indices of the parameters in the order of use, and whether each use is in the compute dtype.
std::tuple<std::vector<std::int64_t>, c10::List<bool>> uses_of(const std::string& size) {
  std::vector<std::int64_t> parameters;
  c10::List<bool> compute_dtype;
  for (const ParameterUse& use : gpt2_uses(gpt2_config(size, 1, 1))) {
    parameters.push_back(static_cast<std::int64_t>(use.parameter));
    compute_dtype.push_back(use.compute_dtype);
  }
  return {parameters, compute_dtype};
}

at::Tensor loss_of_layers(at::TensorList uses, const at::Tensor& tokens, std::int64_t layers,
                          std::int64_t heads, double scale, bool fused_loss, bool sparse_gradient,
                          bool fused_blocks) {
  const Gpt2Config config{"given", layers,          uses[0].size(1),
                          heads,   uses[0].size(0), uses[1].size(0)};
  return gpt2_loss(config, uses, tokens, scale, fused_loss, sparse_gradient, fused_blocks);
}

std::string fastest_attention_name(at::Device device, at::ScalarType dtype, std::int64_t batch,
                                   std::int64_t heads, std::int64_t key_value_heads,
                                   std::int64_t sequence, std::int64_t head_dim) {
  return fastest_attention(device, dtype, batch, heads, key_value_heads, sequence, head_dim);
}

void use_attention_named(const std::string& name) { use_attention(attention_kernel(name)); }

}  // namespace

TORCH_LIBRARY(trainsuite, m) {
  m.def(
      "gpt2_embed(Tensor token_embedding, Tensor position_embedding, Tensor tokens, "
      "bool sparse_gradient) -> Tensor",
      &gpt2_embed);
  m.def("gpt2_block(Tensor x, Tensor[] p, int heads, bool fused=False) -> Tensor", &gpt2_block);
  m.def(
      "gpt2_head_loss(Tensor x, Tensor norm_weight, Tensor norm_bias, Tensor head, "
      "Tensor targets, float scale, bool fused) -> Tensor",
      &gpt2_head_loss);
  m.def(
      "gpt2_loss(Tensor[] uses, Tensor tokens, int layers, int heads, float scale, "
      "bool fused_loss, bool sparse_gradient, bool fused_blocks=False) -> Tensor",
      &loss_of_layers);
  m.def("gpt2_parameter_names(str size) -> str[]", &parameter_names);
  m.def("gpt2_uses(str size) -> (int[], bool[])", &uses_of);
  m.def(
      "initial_parameter(int[] shape, int seed, int index, float std, float constant, "
      "Device device) -> Tensor",
      &initial_parameter);
  m.def(
      "initial_parameters(str size, int vocabulary, int positions, int seed, Device device) "
      "-> Tensor[]",
      &initial_parameters);
  m.def(
      "random_tokens(int seed, int step, int first_example, int examples, int length, "
      "int vocabulary, Device device) -> Tensor",
      &random_tokens);
  m.def("tensor_hash(Tensor tensor) -> Tensor", &tensor_hash);
  m.def("linear_cross_entropy(Tensor x, Tensor weight, Tensor targets, float scale) -> Tensor",
        &linear_cross_entropy);
  m.def(
      "layer_norm_cast(Tensor x, Tensor weight, Tensor bias, ScalarType dtype) -> (Tensor, Tensor)",
      &layer_norm_cast);
  m.def(
      "add_layer_norm(Tensor residual, Tensor delta, Tensor delta_bias, Tensor weight, "
      "Tensor bias) -> (Tensor, Tensor)",
      &add_layer_norm);
  m.def("bias_gelu(Tensor x, Tensor bias) -> Tensor", &bias_gelu);
  m.def(
      "fastest_attention(Device device, ScalarType dtype, int batch, int heads, "
      "int key_value_heads, int sequence, int head_dim) -> str",
      &fastest_attention_name);
  m.def("use_attention(str name) -> ()", &use_attention_named);
}

}  // namespace trainsuite
