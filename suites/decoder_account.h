#pragma once
// What a decoder's step takes by its own definition: operations, bytes that backward needs, and
// bytes that are moved.
#include <cstdint>

#include "model/decoder.h"
#include "run/account.h"

namespace trainsuite {

/// Elements of all matrices that tokens are multiplied with: head included, embedding excluded.
std::int64_t decoder_matmul_parameters(const DecoderConfig& model);
/// Elements that a micro-batch reads whole: all but an embedding that is no head.
std::int64_t decoder_read_parameters(const DecoderConfig& model);

/// Elements of matrices by what training asks of them. A product takes 2 operations an element and
/// token; those that train have gradients of input and of weight (6 in all), frozen ones of their
/// input alone (4). What stands where no gradient is asked of the input takes 2 less.
struct ProductParameters {
  double trained = 0, frozen = 0, without_input_gradient = 0;
};
/// With attention over `sequence` positions.
double decoder_flops_per_token(const DecoderConfig& model, const ProductParameters& parameters,
                               double sequence, bool causal_halving);

/// Whose kernels decide what a block keeps for backward.
enum class BlockKernels { fused, compiled, reference };

/// How a decoder keeps what backward needs.
struct DecoderKeeping {
  std::int64_t element_bytes = 2, residual_bytes = 2;  // of the compute dtype, the residual stream
  BlockKernels kernels = BlockKernels::fused;
  std::int64_t adapter_rank = 0;  // 0: no adapters
};

/// Bytes a token that backward needs of one block; attention is one kernel's.
std::int64_t decoder_block_bytes(const DecoderConfig& model, const DecoderKeeping& keeping);
/// Of all blocks, the last norm and the loss, but for its logits.
std::int64_t decoder_kept_bytes(const DecoderConfig& model, const DecoderKeeping& keeping);
/// Bytes a token that the last block's backward takes for a moment beside all of that.
std::int64_t decoder_passing_bytes(const DecoderConfig& model, const DecoderKeeping& keeping);

}  // namespace trainsuite
