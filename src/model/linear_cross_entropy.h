#pragma once
// Output head and cross-entropy in one op that never holds fp32 logits.
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// scale x sum of the token cross-entropies of logits = x @ weight^T; 0-d fp32.
/// x [tokens, width] and weight [vocabulary, width] in one dtype (fp32 or bf16); targets [tokens]
/// int64. Targets of -100 are ignored; all ignored gives 0. A target outside the vocabulary is an
/// Error on a CPU and makes the loss NaN on a GPU.
///
/// The forward pass overwrites the logits with their gradient (softmax - onehot) * scale in the
/// same dtype and saves only that. Softmax in fp32. Besides the three matrix products that any
/// head needs, it moves 4 x tokens x vocabulary elements: the product's write and read, the
/// gradient's write and the backward products' read.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& targets, double scale);

}  // namespace trainsuite
