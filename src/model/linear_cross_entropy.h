#pragma once
// Output head and cross-entropy in one op that never holds fp32 logits.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "model/gradient_sink.h"

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

/// The same in chunks of rows whose logits take at most `chunk_bytes` (and of at least one row);
/// 0: linear_cross_entropy, as where all rows fit and no sink takes the gradient. Where the weight
/// is frozen, x's gradient is made in forward and is all that is kept. Where it trains, x is kept
/// and backward computes each chunk's logits again; its gradient sums up over chunks in `target`,
/// or else in its own dtype.
at::Tensor chunked_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& targets, double scale, std::int64_t chunk_bytes,
                                 const GradientTarget& target = {});

/// Row losses [tokens] fp32 and their logits [tokens, vocabulary], overwritten by the gradient
/// where asked for. Not differentiable: the op behind both of the above.
std::tuple<at::Tensor, at::Tensor> cross_entropy_rows(const at::Tensor& x, const at::Tensor& weight,
                                                      const at::Tensor& targets, double scale,
                                                      bool with_gradient);
/// Throws Error for shapes, dtypes or devices that do not fit.
void check_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets);

}  // namespace trainsuite
