// A block to lists of tensors, and a frozen one with adapters back.
#include "core/error.h"
#include "model/decoder.h"

namespace trainsuite {
namespace {

constexpr std::size_t kMatrices = 4;

void append_matrix(std::vector<at::Tensor>& list, const Linear& linear) {
  if (linear.weight.defined()) {
    list.push_back(linear.weight);
  } else {
    list.push_back(linear.quantized.codes);
    list.push_back(nf4_maxima(linear.quantized));
  }
  if (linear.bias.defined()) list.push_back(linear.bias);
}

}  // namespace

std::vector<at::Tensor> block_tensors(const BlockWeights& block) {
  std::vector<at::Tensor> list{block.attention_norm};
  append_matrix(list, block.qkv);
  append_matrix(list, block.output);
  list.push_back(block.mlp_norm);
  append_matrix(list, block.gate_up);
  append_matrix(list, block.down);
  return list;
}

std::vector<at::Tensor> adapter_tensors(const BlockWeights& block) {
  std::vector<at::Tensor> list;
  for (const Linear* linear : block.linears()) {
    list.push_back(linear->adapters.a);
    list.push_back(linear->adapters.b);
  }
  return list;
}

BlockWeights adapted_block(at::TensorList frozen, at::TensorList adapters,
                           const std::vector<std::int64_t>& qkv_rows, double scale) {
  const std::size_t dense = decoder_block_size(false), extra = frozen.size() - dense;
  const bool quantized = extra >= kMatrices;
  const bool bias = extra == 1 || extra == kMatrices + 1;
  if (frozen.size() != dense + bias + (quantized ? kMatrices : 0) ||
      adapters.size() != 2 * kMatrices) {
    fail("adapted block: {} frozen tensors and {} adapters given", frozen.size(), adapters.size());
  }
  std::size_t next = 0, next_adapter = 0;
  const auto take = [&] { return frozen[next++]; };
  const auto matrix = [&](bool with_bias) {
    const at::Tensor &a = adapters[next_adapter], &b = adapters[next_adapter + 1];
    next_adapter += 2;
    Linear linear;
    if (quantized) {
      linear.quantized.codes = take();
      linear.quantized.absmax = take();
      linear.shape = {b.size(0), a.size(1)};
      linear.compute_type = a.scalar_type();
    } else {
      linear.weight = take();
    }
    if (with_bias) linear.bias = take();
    linear.adapters = {a, b, {b.size(0)}, scale};
    return linear;
  };
  BlockWeights block;
  block.attention_norm = take();
  block.qkv = matrix(bias);
  block.qkv.adapters.rows = qkv_rows;
  block.output = matrix(false);
  block.mlp_norm = take();
  block.gate_up = matrix(false);
  const std::int64_t hidden = block.gate_up.adapters.b.size(0) / 2;
  block.gate_up.adapters.rows = {hidden, hidden};
  block.down = matrix(false);
  return block;
}

}  // namespace trainsuite
