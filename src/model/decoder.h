#pragma once
// The decoder of Llama (Touvron et al. 2023) and Qwen2 (Yang et al. 2024) as functions over a
// parameter list, one function per block. Architecture as transformers' LlamaForCausalLM and
// Qwen2ForCausalLM: RMSNorm before, rotary positions (halves), grouped-query causal attention,
// SwiGLU; no dropout. q, k, v lie in one matrix, gate and up in another: fewer, larger products.
//
// Mixed precision follows the rules of autocast, written out: matrices are used in the dtype in
// which they are passed; the residual stream keeps the embedding's dtype; norms, rotation and
// softmax compute in fp32.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/decoder_attention.h"
#include "model/linear.h"
#include "model/parameters.h"

namespace trainsuite {

struct DecoderConfig {
  std::string name;
  std::int64_t layers, width, heads, key_value_heads, head_width, hidden, vocabulary;
  bool qkv_bias;  // Qwen2 has them, Llama has none
  bool tied;      // the head is the token embedding
  double rotary_base, norm_epsilon;

  std::int64_t qkv_rows() const { return (heads + 2 * key_value_heads) * head_width; }
};

/// tiny (2 x 64, as Qwen2, for CPUs), 0.5b and 1.5b (Qwen2.5), 468m (Llama).
std::vector<std::string> decoder_sizes();
/// `vocabulary` 0: the size's own. Throws Error for an unknown size or a negative vocabulary.
DecoderConfig decoder_config(const std::string& size, std::int64_t vocabulary = 0);

/// Names as transformers' without the "model." prefix, but for the joint matrices: "qkv_proj" is
/// q_proj, k_proj, v_proj one below the other, "gate_up_proj" is gate_proj, up_proj.
std::vector<ParameterSpec> decoder_parameters(const DecoderConfig& config);
/// In the order of the forward pass. A tied embedding comes first and again last.
std::vector<ParameterUse> decoder_uses(const DecoderConfig& config);
std::int64_t decoder_parameter_count(const DecoderConfig& config);

/// Cosine and sine [positions, head_width / 2] fp32 of the angles of transformers' default rotary
/// embedding.
struct RotaryTable {
  at::Tensor cosine, sine;
};
RotaryTable rotary_table(std::int64_t positions, std::int64_t head_width, double base,
                         at::Device device);

/// The parts of one block. Matrices may be dense, low-rank adapted or quantized.
struct BlockWeights {
  at::Tensor attention_norm;  // [width]
  Linear qkv, output;
  at::Tensor mlp_norm;  // [width]
  Linear gate_up, down;
  GradientTarget attention_norm_target{}, mlp_norm_target{};

  std::array<Linear*, 4> linears() { return {&qkv, &output, &gate_up, &down}; }
  std::array<const Linear*, 4> linears() const { return {&qkv, &output, &gate_up, &down}; }
};

/// Tensors of a block in a parameter list: 7 with q, k, v biases, else 6.
std::size_t decoder_block_size(bool qkv_bias);
/// p: attention norm, qkv matrix, (qkv bias,) output matrix, mlp norm, gate_up matrix, down matrix.
BlockWeights dense_block(at::TensorList p);

/// A block as lists, the order in which compiled blocks take them: its own tensors as dense_block's
/// p, where a quantized matrix is its codes, then its absmax; and the adapters of a frozen one, a
/// and b of qkv, output, gate_up and down.
std::vector<at::Tensor> block_tensors(const BlockWeights& block);
std::vector<at::Tensor> adapter_tensors(const BlockWeights& block);
/// The frozen block of such lists. `qkv_rows`: rows of q, k and v; `scale`: of the adapters.
BlockWeights adapted_block(at::TensorList frozen, at::TensorList adapters,
                           const std::vector<std::int64_t>& qkv_rows, double scale);

struct DecoderShape {
  std::int64_t heads, key_value_heads;
  double norm_epsilon;
  bool naive_attention = false;  // scores, softmax and sum written out, instead of one kernel
  bool fused = false;            // few operations with kernels of ours; else single operators
  /// Not where fused: norms and layers give the residual stream's dtype whatever they compute in,
  /// as bitsandbytes' do in a model that peft prepared: rotation and SwiGLU then work in it.
  bool wide_outputs = false;
};

/// One block on x [tokens, width]; rotary: [tokens or sequence, head_width / 2], by token.
at::Tensor decoder_block(const at::Tensor& x, const BlockWeights& weights,
                         const RotaryTable& rotary, const TokenLayout& layout,
                         const DecoderShape& shape);

/// Final norm, head and summed cross-entropy times `scale` of x [tokens, width]; targets [tokens]
/// int64, -100 ignored. `fused`: chunked_cross_entropy; else linear, fp32 logits, cross_entropy.
at::Tensor decoder_head_loss(const at::Tensor& x, const at::Tensor& norm, const at::Tensor& head,
                             const at::Tensor& targets, double scale, double norm_epsilon,
                             bool fused);

/// All of a decoder's parts.
struct DecoderWeights {
  at::Tensor embedding;  // [vocabulary, width]
  std::vector<BlockWeights> blocks;
  at::Tensor norm;  // [width]
  at::Tensor head;  // [vocabulary, width], in the compute dtype
  GradientTarget head_target{};
};

/// A block's function in another form: x [tokens, width] to the same shape.
using BlockFunction = std::function<at::Tensor(const at::Tensor& x, const BlockWeights& block)>;

struct DecoderChoices {
  bool naive_attention = false, fused_loss = true;
  bool sparse_gradient = false;       // the embedding's gradient as a sparse tensor of touched rows
  bool fused_blocks = false;          // as DecoderShape's
  bool checkpointing = false;         // blocks keep their input alone and run again in backward
  std::int64_t loss_chunk_bytes = 0;  // of the fused loss, as chunked_cross_entropy's
  BlockFunction block{};              // in place of decoder_block, whatever else is chosen for it
  bool wide_outputs = false;          // as DecoderShape's
};
/// `uses` in decoder_uses order.
DecoderWeights dense_decoder(const DecoderConfig& config, at::TensorList uses);

/// tokens and targets [batch, sequence] int64, laid out as `layout` says; rotary as in
/// decoder_block. Returns a 0-d fp32 tensor: scale x (sum of the losses).
at::Tensor decoder_loss(const DecoderConfig& config, const DecoderWeights& weights,
                        const RotaryTable& rotary, const TokenLayout& layout,
                        const at::Tensor& tokens, const at::Tensor& targets, double scale,
                        const DecoderChoices& choices);
/// The whole model: `uses` in decoder_uses order; tokens and targets [batch, sequence] int64, the
/// target of a token is the one after it. Returns a 0-d fp32 tensor: scale x (sum of the losses).
at::Tensor decoder_loss(const DecoderConfig& config, at::TensorList uses, const RotaryTable& rotary,
                        const at::Tensor& tokens, const at::Tensor& targets, double scale,
                        const DecoderChoices& choices);

}  // namespace trainsuite
