#include "decoder_account.h"

#include "result/statistics.h"

namespace trainsuite {
namespace {

std::int64_t query_width(const DecoderConfig& model) { return model.heads * model.head_width; }

}  // namespace

std::int64_t decoder_matmul_parameters(const DecoderConfig& model) {
  const auto block =
      model.width * (model.qkv_rows() + query_width(model)) + 3 * model.width * model.hidden;
  return model.layers * block + model.vocabulary * model.width;
}

std::int64_t decoder_read_parameters(const DecoderConfig& model) {
  const auto embedding = model.vocabulary * model.width;
  return decoder_parameter_count(model) - (model.tied ? 0 : embedding);
}

double decoder_flops_per_token(const DecoderConfig& model, const ProductParameters& parameters,
                               double sequence, bool causal_halving) {
  return 4 * parameters.frozen - 2 * parameters.without_input_gradient +
         flops_per_token(parameters.trained, static_cast<double>(model.layers),
                         static_cast<double>(query_width(model)), sequence, causal_halving);
}

std::int64_t decoder_block_bytes(const DecoderConfig& model, const DecoderKeeping& keeping) {
  constexpr std::int64_t fp32 = 4;
  const std::int64_t e = keeping.element_bytes, width = model.width;
  // The sums before both norms and their roots; rotated heads, attention and its log-sum-exp, gate
  // and up; inner values of the adapters of q, k, v, o, gate, up, down.
  const std::int64_t least = 2 * (keeping.residual_bytes * width + fp32) +
                             e * (model.qkv_rows() + query_width(model) + 2 * model.hidden) +
                             fp32 * model.heads + 7 * keeping.adapter_rank * e;
  switch (keeping.kernels) {
    case BlockKernels::fused:
      return least;
    case BlockKernels::compiled:  // both norms and what goes into the last product
      return least + e * (2 * width + model.hidden);
    case BlockKernels::reference:  // of both norms the fp32 input, its product with the root, and
      break;  // the norm; q, k, v before the rotation; silu(gate) and the product
  }
  return least + 2 * (2 * fp32 + e - keeping.residual_bytes) * width +
         e * (model.qkv_rows() + 2 * model.hidden);
}

std::int64_t decoder_kept_bytes(const DecoderConfig& model, const DecoderKeeping& keeping) {
  const std::int64_t ends = keeping.residual_bytes + 2 * 4 + 3 * keeping.element_bytes;
  return model.layers * decoder_block_bytes(model, keeping) + ends * model.width;
}

std::int64_t decoder_passing_bytes(const DecoderConfig& model, const DecoderKeeping& keeping) {
  // The activation again, its gradient, and those of gate and up.
  return 4 * keeping.element_bytes * model.hidden;
}

}  // namespace trainsuite
