#pragma once
// GPT-2 (Radford et al. 2019) as functions over a parameter list, one function per block.
// Architecture as transformers' GPT2LMHeadModel: learned positions, pre-LayerNorm (eps 1e-5, with
// bias), tanh GELU, causal attention, output head tied to the token embedding; no dropout.
//
// Mixed precision follows the rules of autocast, written out: matrices are used in the dtype in
// which they are passed, the residual stream and LayerNorm stay in fp32.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/parameters.h"

namespace trainsuite {

struct Gpt2Config {
  std::string name;
  std::int64_t layers, width, heads, vocabulary, positions;
};

/// Sizes: 124m (12 x 768, 12 heads), 355m (24 x 1024, 16 heads), tiny (2 x 64, 4 heads, for CPUs).
std::vector<std::string> gpt2_sizes();
/// Throws Error for an unknown size.
Gpt2Config gpt2_config(const std::string& size, std::int64_t vocabulary, std::int64_t positions);

/// Names as transformers', without the "transformer." prefix.
std::vector<ParameterSpec> gpt2_parameters(const Gpt2Config& config);

/// In the order of the forward pass: backward finishes them from last to first.
std::vector<ParameterUse> gpt2_uses(const Gpt2Config& config);

/// x [batch, sequence, width] fp32. tokens [batch, sequence] int64. `sparse_gradient`: the token
/// embedding's gradient is a sparse tensor of the touched rows.
at::Tensor gpt2_embed(const at::Tensor& token_embedding, const at::Tensor& position_embedding,
                      const at::Tensor& tokens, bool sparse_gradient);
/// One decoder block. p: ln_1 w b, attn qkv w b, attn proj w b, ln_2 w b, mlp fc w b, mlp proj w b.
/// `fused`: with the kernels of model/layer_norm.h and bias_gelu.h, else PyTorch's own operators.
at::Tensor gpt2_block(const at::Tensor& x, at::TensorList p, std::int64_t heads,
                      bool fused = false);
/// Final norm, head and summed cross-entropy times `scale`; targets [batch, sequence] int64.
/// `fused`: linear_cross_entropy; else linear, fp32 logits, cross_entropy as PyTorch would.
at::Tensor gpt2_head_loss(const at::Tensor& x, const at::Tensor& norm_weight,
                          const at::Tensor& norm_bias, const at::Tensor& head,
                          const at::Tensor& targets, double scale, bool fused);
/// Functions that take the place of the model's own, such as compiled ones; empty: its own.
struct Gpt2Parts {
  std::function<at::Tensor(const at::Tensor& x, at::TensorList p)> block;
  /// tail: final norm w b, head. x [batch, sequence, width].
  std::function<at::Tensor(const at::Tensor& x, at::TensorList tail, const at::Tensor& targets,
                           double scale)>
      head_loss;
};

/// The whole model: `uses` in gpt2_uses order, tokens [batch, sequence + 1] int64. Returns a 0-d
/// fp32 tensor: scale x (sum of the token losses). `fused_blocks`: as in gpt2_block, and the
/// residual sums fused across blocks. `parts`: both or none.
at::Tensor gpt2_loss(const Gpt2Config& config, at::TensorList uses, const at::Tensor& tokens,
                     double scale, bool fused_loss, bool sparse_gradient, bool fused_blocks = false,
                     const Gpt2Parts& parts = {});

}  // namespace trainsuite
