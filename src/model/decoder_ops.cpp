// The decoder's functions as torch ops: for Python's tests and twins, and for capturing.
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/library.h>

#include "core/error.h"
#include "model/counter_hash.h"
#include "model/decoder.h"

namespace trainsuite {
namespace {

std::vector<std::string> names_of(const std::string& size) {
  std::vector<std::string> names;
  for (const ParameterSpec& spec : decoder_parameters(decoder_config(size))) {
    names.push_back(spec.name);
  }
  return names;
}

std::tuple<std::vector<std::int64_t>, c10::List<bool>> uses_of(const std::string& size) {
  std::vector<std::int64_t> parameters;
  c10::List<bool> compute_dtype;
  for (const ParameterUse& use : decoder_uses(decoder_config(size))) {
    parameters.push_back(static_cast<std::int64_t>(use.parameter));
    compute_dtype.push_back(use.compute_dtype);
  }
  return {parameters, compute_dtype};
}

std::vector<at::Tensor> initial_tensors(const std::string& size, std::int64_t vocabulary,
                                        std::int64_t seed, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  std::vector<at::Tensor> tensors;
  for (const ParameterSpec& spec : decoder_parameters(decoder_config(size, vocabulary))) {
    at::Tensor values = at::full(spec.shape, spec.init_constant, options);
    const auto index = static_cast<std::int64_t>(tensors.size());
    if (spec.init_std > 0) fill_initial_parameter_(values, seed, index, spec.init_std);
    tensors.push_back(values);
  }
  return tensors;
}

/// layers, width, heads, key-value heads, head width, hidden, vocabulary, biases, tied.
std::vector<std::int64_t> shape_of(const std::string& size) {
  const DecoderConfig c = decoder_config(size);
  return {c.layers,     c.width,    c.heads, c.key_value_heads, c.head_width, c.hidden,
          c.vocabulary, c.qkv_bias, c.tied};
}

std::tuple<double, double> numbers_of(const std::string& size) {
  const DecoderConfig config = decoder_config(size);
  return {config.rotary_base, config.norm_epsilon};
}

std::tuple<at::Tensor, at::Tensor> table_of(std::int64_t positions, std::int64_t head_width,
                                            double base, at::Device device) {
  const RotaryTable table = rotary_table(positions, head_width, base, device);
  return {table.cosine, table.sine};
}

at::Tensor embed(const at::Tensor& embedding, const at::Tensor& tokens, bool sparse_gradient) {
  return at::embedding(embedding, tokens, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                       sparse_gradient);
}

at::Tensor block_of(const at::Tensor& x, at::TensorList p, const at::Tensor& cosine,
                    const at::Tensor& sine, std::int64_t heads, std::int64_t key_value_heads,
                    double norm_epsilon, bool naive_attention, bool fused) {
  if (x.dim() != 3) fail("decoder_block: x has {} dimensions, 3 needed", x.dim());
  const TokenLayout layout{x.size(0), x.size(1)};
  const DecoderShape shape{heads, key_value_heads, norm_epsilon, naive_attention, fused};
  return decoder_block(x.reshape({-1, x.size(2)}), dense_block(p), {cosine, sine}, layout, shape)
      .view(x.sizes());
}

at::Tensor adapted_block_of(const at::Tensor& x, at::TensorList frozen, at::TensorList adapters,
                            const at::Tensor& cosine, const at::Tensor& sine, std::int64_t heads,
                            std::int64_t key_value_heads, double norm_epsilon, double scale,
                            bool naive_attention, bool fused, bool wide_outputs) {
  if (x.dim() != 3) fail("decoder_adapted_block: x has {} dimensions, 3 needed", x.dim());
  const std::int64_t head_width = 2 * cosine.size(1), key = key_value_heads * head_width;
  const BlockWeights block = adapted_block(frozen, adapters, {heads * head_width, key, key}, scale);
  DecoderShape shape{heads, key_value_heads, norm_epsilon, naive_attention, fused};
  shape.wide_outputs = wide_outputs;
  return decoder_block(x.reshape({-1, x.size(2)}), block, {cosine, sine}, {x.size(0), x.size(1)},
                       shape)
      .view(x.sizes());
}

at::Tensor head_loss_of(const at::Tensor& x, const at::Tensor& norm, const at::Tensor& head,
                        const at::Tensor& targets, double scale, double norm_epsilon, bool fused) {
  return decoder_head_loss(x.reshape({-1, x.size(-1)}), norm, head, targets.reshape({-1}), scale,
                           norm_epsilon, fused);
}

at::Tensor loss_of(const std::string& size, at::TensorList uses, const at::Tensor& tokens,
                   const at::Tensor& targets, double scale, bool naive_attention, bool fused_loss,
                   bool sparse_gradient, bool fused_blocks, std::int64_t loss_chunk_bytes) {
  const DecoderConfig config = decoder_config(size, uses[0].size(0));
  const RotaryTable rotary =
      rotary_table(tokens.size(1), config.head_width, config.rotary_base, tokens.device());
  DecoderChoices choices{naive_attention, fused_loss, sparse_gradient, fused_blocks};
  choices.loss_chunk_bytes = loss_chunk_bytes;
  return decoder_loss(config, uses, rotary, tokens, targets, scale, choices);
}

at::Tensor attention_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        std::int64_t batch, std::int64_t sequence,
                        const std::vector<std::int64_t>& lengths,
                        const std::optional<at::Tensor>& bounds, bool naive) {
  return causal_attention(q, k, v, {batch, sequence, lengths, bounds.value_or(at::Tensor())},
                          naive);
}

at::Tensor linear_of(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                     const std::optional<at::Tensor>& codes,
                     const std::optional<at::Tensor>& absmax, std::int64_t out,
                     const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& a,
                     const std::optional<at::Tensor>& b, const std::vector<std::int64_t>& rows,
                     double scale, double dropout, const std::optional<at::Tensor>& counter,
                     std::int64_t layer) {
  Linear linear;
  linear.weight = weight.value_or(at::Tensor());
  linear.bias = bias.value_or(at::Tensor());
  linear.quantized = {codes.value_or(at::Tensor()), absmax.value_or(at::Tensor())};
  linear.shape = {out, x.size(1)};
  linear.compute_type = x.scalar_type();
  linear.adapters = {a.value_or(at::Tensor()), b.value_or(at::Tensor()), rows, scale};
  linear.adapters.dropout = {dropout, counter.value_or(at::Tensor()), layer};
  return apply(linear, x);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("decoder_parameter_names(str size) -> str[]", &names_of);
  m.def("decoder_uses(str size) -> (int[], bool[])", &uses_of);
  m.def("decoder_shape(str size) -> int[]", &shape_of);
  m.def("decoder_numbers(str size) -> (float, float)", &numbers_of);
  m.def("decoder_initial_parameters(str size, int vocabulary, int seed, Device device) -> Tensor[]",
        &initial_tensors);
  m.def(
      "rotary_table(int positions, int head_width, float base, Device device) "
      "-> (Tensor, Tensor)",
      &table_of);
  m.def("decoder_embed(Tensor embedding, Tensor tokens, bool sparse_gradient=False) -> Tensor",
        &embed);
  m.def(
      "decoder_block(Tensor x, Tensor[] p, Tensor cosine, Tensor sine, int heads, "
      "int key_value_heads, float norm_epsilon, bool naive_attention=False, bool fused=False) "
      "-> Tensor",
      &block_of);
  m.def(
      "decoder_adapted_block(Tensor x, Tensor[] frozen, Tensor[] adapters, Tensor cosine, "
      "Tensor sine, int heads, int key_value_heads, float norm_epsilon, float scale, "
      "bool naive_attention=False, bool fused=False, bool wide_outputs=False) -> Tensor",
      &adapted_block_of);
  m.def(
      "decoder_head_loss(Tensor x, Tensor norm, Tensor head, Tensor targets, float scale, "
      "float norm_epsilon, bool fused) -> Tensor",
      &head_loss_of);
  m.def(
      "decoder_loss(str size, Tensor[] uses, Tensor tokens, Tensor targets, float scale, "
      "bool naive_attention=False, bool fused_loss=True, bool sparse_gradient=False, "
      "bool fused_blocks=False, int loss_chunk_bytes=0) -> Tensor",
      &loss_of);
  m.def(
      "causal_attention(Tensor q, Tensor k, Tensor v, int batch, int sequence, int[] lengths, "
      "Tensor? bounds, bool naive) -> Tensor",
      &attention_of);
  m.def(
      "linear(Tensor x, Tensor? weight, Tensor? codes, Tensor? absmax, int out, Tensor? bias, "
      "Tensor? a, Tensor? b, int[] rows, float scale, float dropout=0, Tensor? counter=None, "
      "int layer=0) -> Tensor",
      &linear_of);
}

}  // namespace trainsuite
