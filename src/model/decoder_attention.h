#pragma once
// Causal grouped-query attention over a batch of rows of equal length.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trainsuite {

/// How tokens [batch x sequence] lie: row by row. Padding stands on the right, where no causal
/// query of a real token looks. With `lengths` the one row holds examples of these lengths one
/// after the other, which do not see each other; `bounds` says the same on the device: int32
/// [examples + 1], from 0.
struct TokenLayout {
  std::int64_t batch, sequence;
  std::vector<std::int64_t> lengths{};
  at::Tensor bounds{};
  std::int64_t longest = 0;  // of lengths, or an upper bound; 0: to be found
};

/// q [tokens, heads, head_width]; k, v [tokens, key_value_heads, head_width], a key head for each
/// heads / key_value_heads query heads in order. Returns [tokens, heads x head_width].
/// `naive`: scores, mask, fp32 softmax and sum as operators of their own.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const TokenLayout& layout, bool naive);

}  // namespace trainsuite
