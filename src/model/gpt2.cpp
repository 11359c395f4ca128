#include "model/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "core/error.h"
#include "model/bias_gelu.h"
#include "model/layer_norm.h"
#include "model/linear_cross_entropy.h"

namespace trainsuite {
namespace {

constexpr double kNormEpsilon = 1e-5;
constexpr std::int64_t kIgnoredTarget = -100;
constexpr std::size_t kBlockParameters = 12;

struct Sizes {
  std::int64_t batch, sequence, heads;
};

/// LayerNorm in x's dtype (fp32), then the dtype in which `matrix` is used.
at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                const at::Tensor& matrix) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kNormEpsilon).to(matrix.scalar_type());
}

/// Causal self-attention of h [tokens, width]; w, b: the joint q, k, v projection.
at::Tensor self_attention(const at::Tensor& h, const at::Tensor& w, const at::Tensor& b,
                          const Sizes& sizes) {
  const std::int64_t width = h.size(1);
  // unbind's gradient is one stack; split or narrow would add up zero-filled buffers.
  const std::vector<at::Tensor> qkv =
      at::linear(h, w, b)
          .view({sizes.batch, sizes.sequence, 3, sizes.heads, width / sizes.heads})
          .unbind(2);
  return at::scaled_dot_product_attention(qkv[0].transpose(1, 2), qkv[1].transpose(1, 2),
                                          qkv[2].transpose(1, 2), {}, 0.0, /*is_causal=*/true)
      .transpose(1, 2)
      .reshape({-1, width});
}

at::Tensor mlp(const at::Tensor& h, at::TensorList p) {
  return at::linear(at::gelu(at::linear(h, p[0], p[1]), "tanh"), p[2], p[3]);
}

/// One block on x [tokens, width].
at::Tensor block(const at::Tensor& x, at::TensorList p, const Sizes& sizes) {
  const at::Tensor attended = self_attention(norm(x, p[0], p[1], p[2]), p[2], p[3], sizes);
  const at::Tensor middle = x + at::linear(attended, p[4], p[5]);
  return middle + mlp(norm(middle, p[6], p[7], p[8]), p.slice(8, 4));
}

/// The residual stream with a sum still to be done by the next fused LayerNorm: of `delta`, a
/// linear layer's product, and its bias. delta is undefined where nothing is pending.
struct Stream {
  at::Tensor residual, delta, delta_bias;
};

at::Tensor fused_norm(Stream& stream, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& matrix) {
  const auto [sum, normalized] =
      stream.delta.defined()
          ? add_layer_norm(stream.residual, stream.delta, stream.delta_bias, weight, bias)
          : layer_norm_cast(stream.residual, weight, bias, matrix.scalar_type());
  stream = {sum, {}, {}};
  return normalized;
}

void fused_block(Stream& stream, at::TensorList p, const Sizes& sizes) {
  const at::Tensor attention_input = fused_norm(stream, p[0], p[1], p[2]);
  const at::Tensor attended = self_attention(attention_input, p[2], p[3], sizes);
  stream.delta = at::linear(attended, p[4]), stream.delta_bias = p[5];
  const at::Tensor mlp_input = fused_norm(stream, p[6], p[7], p[8]);
  const at::Tensor active = bias_gelu(at::linear(mlp_input, p[8]), p[9]);
  stream.delta = at::linear(active, p[10]), stream.delta_bias = p[11];
}

/// scale x sum of cross-entropies of hidden [tokens, width].
at::Tensor loss_of(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                   double scale, bool fused) {
  const at::Tensor flat_targets = targets.reshape({-1});
  if (fused) return linear_cross_entropy(hidden, head, flat_targets, scale);
  const at::Tensor logits = at::linear(hidden, head).to(at::kFloat);
  return at::cross_entropy_loss(logits, flat_targets, {}, at::Reduction::Sum, kIgnoredTarget) *
         scale;
}

at::Tensor loss_of_parts(const Gpt2Config& config, at::TensorList uses, const at::Tensor& tokens,
                         double scale, bool sparse_gradient, const Gpt2Parts& parts) {
  const std::int64_t sequence = tokens.size(1) - 1;
  at::Tensor x = gpt2_embed(uses[0], uses[1], tokens.narrow(1, 0, sequence), sparse_gradient);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    x = parts.block(x, uses.slice(2 + layer * kBlockParameters, kBlockParameters));
  }
  return parts.head_loss(x, uses.slice(uses.size() - 3, 3), tokens.narrow(1, 1, sequence), scale);
}

void check_block(const at::Tensor& x, at::TensorList p, std::int64_t heads) {
  if (p.size() != kBlockParameters) {
    fail("gpt2_block: {} parameters given, {} needed", p.size(), kBlockParameters);
  }
  if (x.dim() != 3) fail("gpt2_block: x has {} dimensions, 3 needed", x.dim());
  if (heads < 1 || x.size(2) % heads != 0) {
    fail("gpt2_block: width {} is not divisible by {} heads", x.size(2), heads);
  }
}

void check_uses(const Gpt2Config& config, at::TensorList uses, const at::Tensor& tokens) {
  const std::size_t expected = 2 + static_cast<std::size_t>(config.layers) * kBlockParameters + 3;
  if (uses.size() != expected) {
    fail("gpt2_loss: {} parameter uses given, GPT-2 {} has {}", uses.size(), config.name, expected);
  }
  if (tokens.dim() != 2 || tokens.size(1) < 2) {
    fail("gpt2_loss: tokens must be [batch, sequence + 1] with a sequence of at least 1");
  }
  if (config.heads < 1 || uses[0].size(1) % config.heads != 0) {
    fail("gpt2_loss: width {} is not divisible by {} heads", uses[0].size(1), config.heads);
  }
}

}  // namespace

at::Tensor gpt2_embed(const at::Tensor& token_embedding, const at::Tensor& position_embedding,
                      const at::Tensor& tokens, bool sparse_gradient) {
  const std::int64_t sequence = tokens.size(1), positions = position_embedding.size(0);
  if (sequence > positions) {
    fail("gpt2_embed: sequence {} exceeds the model's {} positions", sequence, positions);
  }
  // A whole slice would still cost a zero-filled gradient.
  const at::Tensor position =
      sequence == positions ? position_embedding : position_embedding.slice(0, 0, sequence);
  return at::embedding(token_embedding, tokens, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                       sparse_gradient) +
         position;
}

at::Tensor gpt2_block(const at::Tensor& x, at::TensorList p, std::int64_t heads, bool fused) {
  check_block(x, p, heads);
  const Sizes sizes{x.size(0), x.size(1), heads};
  const at::Tensor flat = x.reshape({-1, x.size(2)});
  if (!fused) return block(flat, p, sizes).view(x.sizes());
  Stream stream{flat, {}, {}};
  fused_block(stream, p, sizes);
  return (stream.residual + stream.delta + stream.delta_bias).view(x.sizes());
}

at::Tensor gpt2_head_loss(const at::Tensor& x, const at::Tensor& norm_weight,
                          const at::Tensor& norm_bias, const at::Tensor& head,
                          const at::Tensor& targets, double scale, bool fused) {
  const at::Tensor hidden = norm(x.reshape({-1, x.size(-1)}), norm_weight, norm_bias, head);
  return loss_of(hidden, head, targets, scale, fused);
}

at::Tensor gpt2_loss(const Gpt2Config& config, at::TensorList uses, const at::Tensor& tokens,
                     double scale, bool fused_loss, bool sparse_gradient, bool fused_blocks,
                     const Gpt2Parts& parts) {
  check_uses(config, uses, tokens);
  if (parts.block) return loss_of_parts(config, uses, tokens, scale, sparse_gradient, parts);
  const std::int64_t batch = tokens.size(0), sequence = tokens.size(1) - 1;
  const Sizes sizes{batch, sequence, config.heads};
  const at::Tensor embedded =
      gpt2_embed(uses[0], uses[1], tokens.narrow(1, 0, sequence), sparse_gradient);
  Stream stream{embedded.view({batch * sequence, -1}), {}, {}};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const at::TensorList p = uses.slice(2 + layer * kBlockParameters, kBlockParameters);
    if (fused_blocks) {
      fused_block(stream, p, sizes);
    } else {
      stream.residual = block(stream.residual, p, sizes);
    }
  }
  const at::TensorList tail = uses.slice(uses.size() - 3, 3);
  const at::Tensor hidden = fused_blocks ? fused_norm(stream, tail[0], tail[1], tail[2])
                                         : norm(stream.residual, tail[0], tail[1], tail[2]);
  return loss_of(hidden, tail[2], tokens.narrow(1, 1, sequence), scale, fused_loss);
}

}  // namespace trainsuite
