#include "model/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>

#include "core/error.h"
#include "model/checkpoint.h"
#include "model/linear_cross_entropy.h"
#include "model/rms_norm.h"
#include "model/rotary.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kIgnoredTarget = -100;

/// RMSNorm in fp32, then `dtype`.
at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                at::ScalarType dtype) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return (wide * rstd * weight.to(at::kFloat)).to(dtype);
}

/// Rotates x [tokens, heads, head_width] by its tokens' angles, halves against each other.
at::Tensor rotated(const at::Tensor& x, const RotaryTable& rotary, const TokenLayout& layout) {
  const std::int64_t half = x.size(2) / 2;
  const at::Tensor rows = x.view({layout.batch, layout.sequence, x.size(1), x.size(2)});
  const std::vector<std::int64_t> by_token{-1, layout.sequence, 1, half};
  const at::Tensor cosine = rotary.cosine.view(by_token), sine = rotary.sine.view(by_token);
  const std::vector<at::Tensor> parts = rows.chunk(2, -1);
  const at::Tensor turned = at::cat(
      {parts[0] * cosine - parts[1] * sine, parts[1] * cosine + parts[0] * sine}, /*dim=*/-1);
  return turned.to(x.scalar_type()).view(x.sizes());
}

/// A layer's output in its input's dtype, whatever it computes in.
at::Tensor apply_wide(const Linear& linear, const at::Tensor& x) {
  return apply(linear, x.to(input_dtype(linear))).to(x.scalar_type());
}

at::Tensor attention(const at::Tensor& h, const BlockWeights& weights, const RotaryTable& rotary,
                     const TokenLayout& layout, const DecoderShape& shape) {
  const std::int64_t all_heads = shape.heads + 2 * shape.key_value_heads;
  const at::Tensor joint = apply_wide(weights.qkv, h);
  const at::Tensor qkv = joint.view({h.size(0), all_heads, joint.size(1) / all_heads});
  const std::vector<at::Tensor> parts =
      qkv.split_with_sizes({shape.heads + shape.key_value_heads, shape.key_value_heads}, 1);
  const std::vector<at::Tensor> qk =
      rotated(parts[0], rotary, layout).split_with_sizes({shape.heads, shape.key_value_heads}, 1);
  // In a traced block backward would keep v as a part of the joint product, and so all of that.
  const at::Tensor values = shape.fused ? parts[1] : parts[1].contiguous();
  const at::ScalarType compute = input_dtype(weights.output);
  const at::Tensor out = causal_attention(qk[0].to(compute), qk[1].to(compute), values.to(compute),
                                          layout, shape.naive_attention);
  return apply(weights.output, out);
}

at::Tensor mlp(const at::Tensor& h, const BlockWeights& weights) {
  const std::vector<at::Tensor> parts = apply_wide(weights.gate_up, h).chunk(2, -1);
  return apply_wide(weights.down, at::silu(parts[0]) * parts[1]);
}

/// The residual stream between blocks: x + delta. The next norm adds them on its way.
struct Stream {
  at::Tensor x, delta;
};

at::Tensor joined(const Stream& stream) {
  return stream.delta.defined() ? stream.x + stream.delta : stream.x;
}

/// scale x the summed cross-entropy of hidden [tokens, width], the final norm's output.
at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                     double scale, const DecoderChoices& choices, const GradientTarget& target) {
  if (choices.fused_loss) {
    return chunked_cross_entropy(hidden, head, targets, scale, choices.loss_chunk_bytes, target);
  }
  const at::Tensor logits = at::linear(hidden, head).to(at::kFloat);
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, kIgnoredTarget) * scale;
}

/// A block of few, large operations: nine without adapters, of which backward keeps the sums
/// before both norms, the rotated heads and their attention, gate and up.
Stream fused_block(const Stream& in, const BlockWeights& weights, const RotaryTable& rotary,
                   const TokenLayout& layout, const DecoderShape& shape) {
  const NormLinear first = norm_linear(
      in.x, in.delta, {weights.attention_norm, shape.norm_epsilon, weights.attention_norm_target},
      weights.qkv);
  const std::int64_t all_heads = shape.heads + 2 * shape.key_value_heads;
  const QueryKeyValue heads =
      rotary_split(first.y, rotary.cosine, rotary.sine,
                   {shape.heads, shape.key_value_heads, first.y.size(1) / all_heads});
  const at::Tensor attended =
      causal_attention(heads.query, heads.key, heads.value, layout, shape.naive_attention);
  const NormLinear second =
      norm_linear(first.sum, apply(weights.output, attended),
                  {weights.mlp_norm, shape.norm_epsilon, weights.mlp_norm_target}, weights.gate_up);
  return {second.sum, swiglu_linear(second.y, weights.down)};
}

}  // namespace

RotaryTable rotary_table(std::int64_t positions, std::int64_t head_width, double base,
                         at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, head_width, 2, options) / head_width;
  const at::Tensor frequencies = 1.0 / at::pow(base, exponents);
  const at::Tensor angles = at::outer(at::arange(positions, options), frequencies);
  return {angles.cos().to(device), angles.sin().to(device)};
}

std::size_t decoder_block_size(bool qkv_bias) { return qkv_bias ? 7 : 6; }

BlockWeights dense_block(at::TensorList p) {
  if (p.size() != decoder_block_size(true) && p.size() != decoder_block_size(false)) {
    fail("decoder block: {} parameters given, 7 (with q, k, v biases) or 6 needed", p.size());
  }
  const std::size_t rest = p.size() - 4;
  const at::Tensor bias = p.size() == decoder_block_size(true) ? p[2] : at::Tensor();
  return {p[0], {p[1], bias}, {p[rest], {}}, p[rest + 1], {p[rest + 2], {}}, {p[rest + 3], {}}};
}

at::Tensor decoder_block(const at::Tensor& x, const BlockWeights& weights,
                         const RotaryTable& rotary, const TokenLayout& layout,
                         const DecoderShape& shape) {
  if (shape.fused) return joined(fused_block({x, {}}, weights, rotary, layout, shape));
  const at::ScalarType dtype = shape.wide_outputs ? x.scalar_type() : input_dtype(weights.qkv);
  const at::Tensor attention_input = norm(x, weights.attention_norm, shape.norm_epsilon, dtype);
  const at::Tensor middle = x + attention(attention_input, weights, rotary, layout, shape);
  const at::Tensor mlp_input = norm(middle, weights.mlp_norm, shape.norm_epsilon, dtype);
  return middle + mlp(mlp_input, weights);
}

at::Tensor decoder_head_loss(const at::Tensor& x, const at::Tensor& norm_weight,
                             const at::Tensor& head, const at::Tensor& targets, double scale,
                             double norm_epsilon, bool fused) {
  return head_loss(norm(x, norm_weight, norm_epsilon, head.scalar_type()), head, targets, scale,
                   {.fused_loss = fused}, {});
}

namespace {

/// Some tensor of the block that trains: it makes the block's output require a gradient.
at::Tensor trained_tensor(const BlockWeights& block) {
  for (const Linear* linear : block.linears()) {
    if (linear->adapters.a.defined()) return linear->adapters.a;
    if (linear->weight.defined() && linear->weight.requires_grad()) return linear->weight;
  }
  return {};
}

at::Tensor checkpointed_block(const at::Tensor& x, const BlockWeights& block,
                              const RotaryTable& rotary, const TokenLayout& layout,
                              const DecoderShape& shape) {
  return checkpoint(x, trained_tensor(block), [=](const at::Tensor& input) {
    return decoder_block(input, block, rotary, layout, shape);
  });
}

}  // namespace

at::Tensor decoder_loss(const DecoderConfig& config, const DecoderWeights& weights,
                        const RotaryTable& rotary, const TokenLayout& layout,
                        const at::Tensor& tokens, const at::Tensor& targets, double scale,
                        const DecoderChoices& choices) {
  if (tokens.dim() != 2 || tokens.numel() == 0 || targets.sizes() != tokens.sizes()) {
    fail("decoder_loss: tokens and targets must both be [batch, sequence] and not empty");
  }
  const DecoderShape shape{config.heads,         config.key_value_heads,
                           config.norm_epsilon,  choices.naive_attention,
                           choices.fused_blocks, choices.wide_outputs};
  const at::Tensor x = at::embedding(weights.embedding, tokens.reshape({-1}), /*padding_idx=*/-1,
                                     /*scale_grad_by_freq=*/false, choices.sparse_gradient);
  Stream stream{x, {}};
  for (const BlockWeights& block : weights.blocks) {
    if (choices.block) {
      stream.x = choices.block(stream.x, block);
    } else if (choices.checkpointing) {
      stream.x = checkpointed_block(stream.x, block, rotary, layout, shape);
    } else if (shape.fused) {
      stream = fused_block(stream, block, rotary, layout, shape);
    } else {
      stream.x = decoder_block(stream.x, block, rotary, layout, shape);
    }
  }
  const at::ScalarType dtype = weights.head.scalar_type();
  const at::Tensor hidden =
      shape.fused ? rms_normalized(stream.x, stream.delta, weights.norm, config.norm_epsilon, dtype)
                  : norm(joined(stream), weights.norm, config.norm_epsilon, dtype);
  return head_loss(hidden, weights.head, targets.reshape({-1}), scale, choices,
                   weights.head_target);
}

DecoderWeights dense_decoder(const DecoderConfig& config, at::TensorList uses) {
  const std::size_t step = decoder_block_size(config.qkv_bias);
  const std::size_t expected = 3 + static_cast<std::size_t>(config.layers) * step;
  if (uses.size() != expected) {
    fail("decoder_loss: {} parameter uses given, {} has {}", uses.size(), config.name, expected);
  }
  DecoderWeights weights{uses[0], {}, uses[expected - 2], uses[expected - 1]};
  for (std::size_t first = 1; first + 2 < expected; first += step) {
    weights.blocks.push_back(dense_block(uses.slice(first, step)));
  }
  return weights;
}

at::Tensor decoder_loss(const DecoderConfig& config, at::TensorList uses, const RotaryTable& rotary,
                        const at::Tensor& tokens, const at::Tensor& targets, double scale,
                        const DecoderChoices& choices) {
  const DecoderWeights weights = dense_decoder(config, uses);
  if (tokens.dim() != 2) fail("decoder_loss: tokens must be [batch, sequence]");
  return decoder_loss(config, weights, rotary, {tokens.size(0), tokens.size(1)}, tokens, targets,
                      scale, choices);
}

}  // namespace trainsuite
