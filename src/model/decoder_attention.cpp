#include "model/decoder_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainsuite {
namespace {

/// [tokens, heads, head_width] -> [batch, heads, sequence, head_width].
at::Tensor by_head(const at::Tensor& x, const TokenLayout& layout) {
  return x.view({layout.batch, layout.sequence, x.size(1), x.size(2)}).transpose(1, 2);
}

/// Every key head once for each of its query heads.
at::Tensor repeated(const at::Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), times, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

at::Tensor written_out(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t sequence = q.size(2), group = q.size(1) / k.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor later = at::ones({sequence, sequence}, q.options().dtype(at::kBool)).triu(1);
  const at::Tensor scores = at::matmul(q, repeated(k, group).transpose(2, 3)) * scale;
  const at::Tensor masked = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  const at::Tensor weights = at::softmax(masked, -1, at::kFloat).to(q.scalar_type());
  return at::matmul(weights, repeated(v, group));
}

at::Tensor rows_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenLayout& layout, bool naive) {
  const at::Tensor queries = by_head(q, layout), keys = by_head(k, layout),
                   values = by_head(v, layout);
  const at::Tensor out =
      naive ? written_out(queries, keys, values)
            : at::scaled_dot_product_attention(queries, keys, values, {}, 0.0, /*is_causal=*/true,
                                               /*scale=*/std::nullopt,
                                               /*enable_gqa=*/q.size(1) != k.size(1));
  return out.transpose(1, 2).reshape({q.size(0), q.size(1) * q.size(2)});
}

/// Examples of different lengths without padding. On GPUs in bf16 one kernel; else one by one.
at::Tensor packed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const TokenLayout& layout, bool naive) {
  const bool one_kernel = q.is_cuda() && q.scalar_type() != at::kFloat && !naive;
  if (one_kernel) {
    const std::int64_t longest =
        layout.longest > 0 ? layout.longest
                           : *std::max_element(layout.lengths.begin(), layout.lengths.end());
    const at::Tensor out = std::get<0>(at::_flash_attention_forward(
        q, k, v, layout.bounds, layout.bounds, longest, longest, /*dropout_p=*/0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false));
    return out.reshape({q.size(0), q.size(1) * q.size(2)});
  }
  std::vector<at::Tensor> outputs;
  const at::IntArrayRef lengths = layout.lengths;
  const auto queries = q.split_with_sizes(lengths), keys = k.split_with_sizes(lengths),
             values = v.split_with_sizes(lengths);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    outputs.push_back(rows_attention(queries[i], keys[i], values[i], {1, lengths[i]}, naive));
  }
  return at::cat(outputs);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const TokenLayout& layout, bool naive) {
  if (!layout.lengths.empty()) return packed_attention(q, k, v, layout, naive);
  return rows_attention(q, k, v, layout, naive);
}

}  // namespace trainsuite
