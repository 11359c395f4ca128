#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainsuite {

struct Heads {
  std::int64_t query, key_value, width;
};
struct QueryKeyValue {
  at::Tensor query, key, value;  // [tokens, heads, width], parts of one tensor
};
/// The heads of qkv [tokens, (query + 2 x key_value) x width], queries first; queries and keys are
/// rotated in fp32, halves against each other, by their tokens' angles: cosine and sine [rows,
/// width / 2] fp32, of which token t takes row t % rows. Keeps nothing of qkv.
QueryKeyValue rotary_split(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine,
                           Heads heads);

}  // namespace trainsuite
