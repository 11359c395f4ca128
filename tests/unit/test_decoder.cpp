// Fused decoder blocks against the blocks of single operators, which the parity tests hold against
// transformers.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <map>

#include "model/decoder.h"
#include "model/rms_norm.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kVocabulary = 61;

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

/// One leaf a use, as training has it: matrices in `compute`, embedding and norms in fp32.
std::vector<at::Tensor> leaves_of(const DecoderConfig& config, at::ScalarType compute) {
  const auto specs = decoder_parameters(config);
  std::vector<at::Tensor> leaves;
  for (const ParameterUse& use : decoder_uses(config)) {
    const ParameterSpec& spec = specs[use.parameter];
    const at::Tensor value = spec.init_constant + 0.1 * at::randn(spec.shape);
    leaves.push_back(value.to(use.compute_dtype ? compute : at::kFloat).requires_grad_());
  }
  return leaves;
}

struct Batch {
  at::Tensor tokens, targets;
  TokenLayout layout;
  RotaryTable rotary;
};

Batch rows_batch(const DecoderConfig& config) {
  const at::Tensor tokens = at::randint(kVocabulary, {3, 10}, at::kLong);
  return {tokens,
          tokens.roll(-1, 1),
          {3, 10},
          rotary_table(10, config.head_width, config.rotary_base, at::kCPU)};
}

Batch packed_batch(const DecoderConfig& config) {
  const std::vector<std::int64_t> lengths{4, 1, 7};
  std::vector<std::int64_t> positions;
  for (const auto length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) positions.push_back(i);
  }
  const RotaryTable table = rotary_table(7, config.head_width, config.rotary_base, at::kCPU);
  const at::Tensor rows = at::tensor(positions), tokens = at::randint(kVocabulary, {1, 12});
  return {tokens,
          tokens.roll(-1, 1),
          {1, 12, lengths, {}},
          {table.cosine.index_select(0, rows), table.sine.index_select(0, rows)}};
}

at::Tensor loss_of(const DecoderConfig& config, const DecoderWeights& weights, const Batch& batch,
                   bool fused, bool checkpointing = false) {
  DecoderChoices choices;
  choices.fused_blocks = fused;
  choices.checkpointing = checkpointing;
  choices.loss_chunk_bytes = 5 * kVocabulary * 4;
  return decoder_loss(config, weights, batch.rotary, batch.layout, batch.tokens, batch.targets, 0.1,
                      choices);
}

std::vector<at::Tensor> answer(const at::Tensor& loss, const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> all = torch::autograd::grad({loss}, leaves);
  all.push_back(loss.detach());
  return all;
}

/// Keeps sums by use.
struct Sink final : GradientSink {
  explicit Sink(const std::vector<at::Tensor>& of) : leaves(of) {}
  Sum sum(std::size_t use) override {
    const auto [at, fresh] = sums.try_emplace(use);
    if (fresh) {
      at->second = at::full(leaves[use].sizes(), std::numeric_limits<float>::quiet_NaN());
    }
    return {at->second, fresh};
  }
  const std::vector<at::Tensor>& leaves;
  std::map<std::size_t, at::Tensor> sums;
};

/// Every target of a dense decoder with biases; returns the uses that keep their gradient.
void sink_all(DecoderWeights& weights, Sink& sink) {
  std::size_t use = 1;
  for (BlockWeights& block : weights.blocks) {
    block.attention_norm_target = {&sink, use++};
    block.qkv.weight_target = {&sink, use++};
    block.qkv.bias_target = {&sink, use++};
    block.output.weight_target = {&sink, use++};
    block.mlp_norm_target = {&sink, use++};
    block.gate_up.weight_target = {&sink, use++};
    block.down.weight_target = {&sink, use++};
  }
  weights.head_target = {&sink, use + 1};
}

class Fused : public testing::TestWithParam<at::ScalarType> {
 protected:
  const DecoderConfig config = decoder_config("tiny", kVocabulary);
  double tolerance() const { return GetParam() == at::kFloat ? 2e-5 : 3e-2; }
};
INSTANTIATE_TEST_SUITE_P(Decoder, Fused, testing::Values(at::kFloat, at::kBFloat16));

TEST_P(Fused, BlocksEqualSingleOperators) {
  const auto leaves = leaves_of(config, GetParam());
  const DecoderWeights weights = dense_decoder(config, leaves);
  for (const Batch& batch : {rows_batch(config), packed_batch(config)}) {
    const auto expected = answer(loss_of(config, weights, batch, false), leaves);
    const auto mine = answer(loss_of(config, weights, batch, true), leaves);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_LE(difference(mine[i], expected[i]), tolerance()) << i;
    }
  }
}

TEST_P(Fused, CheckpointedBlocksEqualKeptOnes) {
  const auto leaves = leaves_of(config, GetParam());
  const DecoderWeights weights = dense_decoder(config, leaves);
  const Batch batch = rows_batch(config);
  const auto expected = answer(loss_of(config, weights, batch, true), leaves);
  loss_of(config, weights, batch, true, true).backward();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LE(difference(leaves[i].grad(), expected[i]), tolerance()) << i;
  }
}

TEST_P(Fused, SinksSumWhatAutogradWouldReturn) {
  const auto leaves = leaves_of(config, GetParam());
  DecoderWeights weights = dense_decoder(config, leaves);
  const Batch batches[] = {rows_batch(config), packed_batch(config)};
  std::vector<at::Tensor> expected;
  for (const Batch& batch : batches) {
    const auto one = answer(loss_of(config, weights, batch, true), leaves);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const at::Tensor wide = one[i].to(at::kFloat);
      if (expected.size() == i) expected.push_back(at::zeros_like(wide));
      expected[i] = expected[i] + wide;
    }
  }
  Sink sink(leaves);
  sink_all(weights, sink);
  for (const Batch& batch : batches) loss_of(config, weights, batch, true).backward();
  EXPECT_EQ(sink.sums.size(), leaves.size() - 2);  // all but embedding and last norm
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool sunk = sink.sums.count(i) > 0;
    EXPECT_EQ(leaves[i].grad().defined(), !sunk) << i;
    EXPECT_LE(difference(sunk ? sink.sums.at(i) : leaves[i].grad(), expected[i]), tolerance()) << i;
  }
}

TEST(RmsNorm, IsPyTorchs) {
  const at::Tensor residual = at::randn({5, 12}).requires_grad_(),
                   delta = at::randn({5, 12}).requires_grad_(),
                   weight = at::randn({12}).requires_grad_();
  const at::Tensor sum = residual + delta, theirs = at::rms_norm(sum, {12}, weight, 1e-6);
  const RmsNorm mine = rms_norm(residual, delta, weight, 1e-6, at::kFloat);
  EXPECT_LE(difference(mine.normalized, theirs), 1e-6);
  const at::Tensor upstream = at::randn({5, 12}), of_sum = at::randn({5, 12});
  const auto expected =
      torch::autograd::grad({theirs, sum}, {residual, delta, weight}, {upstream, of_sum});
  const RmsNormGradients out =
      rms_norm_backward(upstream, of_sum, mine.sum, mine.rstd, weight, {true, true, true});
  EXPECT_LE(difference(out.residual, expected[0]), 1e-6);
  EXPECT_LE(difference(out.delta, expected[1]), 1e-6);
  EXPECT_LE(difference(out.weight, expected[2]), 1e-6);
  EXPECT_TRUE(at::equal(out.normalized, mine.normalized));
}

TEST(RmsNorm, AloneIsPyTorchs) {
  const at::Tensor residual = at::randn({5, 16}).requires_grad_(),
                   delta = at::randn({5, 16}).requires_grad_(),
                   weight = at::randn({16}).requires_grad_(), upstream = at::randn({5, 16});
  const auto compare = [&](const at::Tensor& mine, const at::Tensor& theirs,
                           const std::vector<at::Tensor>& of) {
    EXPECT_LE(difference(mine, theirs), 1e-6);
    const auto a = torch::autograd::grad({mine}, of, {upstream});
    const auto b = torch::autograd::grad({theirs}, of, {upstream});
    for (std::size_t i = 0; i < of.size(); ++i) EXPECT_LE(difference(a[i], b[i]), 1e-6) << i;
  };
  compare(rms_normalized(residual, {}, weight, 1e-6, at::kFloat),
          at::rms_norm(residual, {16}, weight, 1e-6), {residual, weight});
  compare(rms_normalized(residual, delta, weight, 1e-6, at::kFloat),
          at::rms_norm(residual + delta, {16}, weight, 1e-6), {residual, delta, weight});
}

TEST(RmsNorm, BeforeALayerTakesTheGradientOfItsInput) {
  const at::Tensor x = at::randn({5, 16}).requires_grad_(), norm = at::randn({16}).requires_grad_(),
                   matrix = at::randn({8, 16}).requires_grad_();
  const NormLinear out = norm_linear(x, {}, {norm, 1e-6}, {matrix});
  const at::Tensor theirs = at::linear(at::rms_norm(x, {16}, norm, 1e-6), matrix);
  const at::Tensor upstream = at::randn({5, 8}), of_x = at::randn({5, 16});
  const auto mine = torch::autograd::grad({out.y, out.sum}, {x, norm, matrix}, {upstream, of_x});
  const auto expected = torch::autograd::grad({theirs, x}, {x, norm, matrix}, {upstream, of_x});
  EXPECT_TRUE(at::equal(out.sum, x));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(difference(mine[i], expected[i]), 1e-5) << i;
}

}  // namespace
}  // namespace trainsuite
