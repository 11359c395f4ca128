#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "train/gradients.h"
#include "train/optimizer.h"

namespace trainsuite {
namespace {

TEST(AdamW, ForeachStepsAsFusedDoes) {
  at::manual_seed(1);
  std::vector<at::Tensor> fused{at::randn({5, 7}), at::randn({3})}, foreach;
  for (const auto& p : fused)
    foreach
      .push_back(p.clone());
  const at::Tensor start = fused[0].clone();
  AdamW a(fused, {.learning_rate = 0.1, .weight_decay = 0.3});
  AdamW b(foreach, {.learning_rate = 0.1, .weight_decay = 0.3, .foreach = true});
  for (int i = 0; i < 5; ++i) {
    const std::vector<at::Tensor> gradients{at::randn({5, 7}), at::randn({3})};
    a.set_learning_rate(0.1 / (i + 1));
    b.set_learning_rate(0.1 / (i + 1));
    a.step(gradients);
    b.step(gradients);
  }
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LT((fused[i] - foreach[i]).abs().max().item<float>(), 1e-5);
  }
  EXPECT_GT((fused[0] - start).abs().mean().item<float>(), 0.05);
}

TEST(AdamW, LeavesAParameterWithoutGradientAndItsStepCount) {
  at::manual_seed(2);
  std::vector<at::Tensor> both{at::randn({6}), at::randn({4})};
  std::vector<at::Tensor> alone{both[1].clone()};
  AdamW pair(both, {.learning_rate = 0.1}), single(alone, {.learning_rate = 0.1});
  const at::Tensor before = both[1].clone();
  pair.step({at::randn({6}), {}});
  EXPECT_TRUE(at::equal(both[1], before));
  for (int i = 0; i < 2; ++i) {  // its first step has the first step's bias correction
    const at::Tensor gradient = at::randn({4});
    pair.step({at::randn({6}), gradient});
    single.step({gradient});
  }
  EXPECT_TRUE(at::equal(both[1], alone[0]));
}

/// A tied embedding, a matrix and a vector that stays in fp32.
const std::vector<ParameterSpec> specs{
    {"embedding", {5, 4}, 1.0, 0}, {"matrix", {3, 4}, 1.0, 0}, {"vector", {3}, 1.0, 0}};
const std::vector<ParameterUse> uses{{0, false}, {1, true}, {2, false}, {0, true}};

WorkingWeights bf16_weights() { return {specs, uses, at::kBFloat16, at::kCPU, 1}; }

TEST(AdamW, NarrowGradientsStepAsCastOnesAndCopiesFollow) {
  WorkingWeights weights = bf16_weights();
  std::vector<at::Tensor> plain;
  for (const auto& p : weights.parameters()) plain.push_back(p.clone());
  const std::vector<at::Tensor> start = plain;
  AdamW a(weights, {.learning_rate = 0.1}), b(plain, {.learning_rate = 0.1});
  for (int i = 0; i < 3; ++i) {
    std::vector<at::Tensor> narrow, wide;
    for (const auto& p : plain) {
      narrow.push_back(at::randn(p.sizes()).to(at::kBFloat16));
      wide.push_back(narrow.back().to(at::kFloat));
    }
    a.step(narrow);
    b.step(wide);
  }
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::equal(weights.parameters()[i], plain[i])) << specs[i].name;
  }
  for (std::size_t use : {1, 3}) {  // leaves in the compute dtype
    const at::Tensor& p = plain[uses[use].parameter];
    EXPECT_TRUE(at::equal(weights.leaves()[use].detach(), p.to(at::kBFloat16))) << use;
    EXPECT_EQ(weights.leaves()[use].data_ptr(), weights.copies()[uses[use].parameter].data_ptr());
  }
  EXPECT_FALSE(weights.copies()[2].defined());
}

at::Tensor loss_of(at::TensorList leaves, double scale) {
  const at::Tensor x = at::arange(4).to(at::kFloat) * scale;
  const at::Tensor tied = leaves[0].mv(x).sum() + leaves[3].to(at::kFloat).mv(x).sin().sum();
  return tied + (leaves[1].to(at::kFloat).mv(x) * leaves[2]).sum();
}

/// Gradients of `micro_batches` and their bytes; autograd's own of the same loss, in fp32, beside.
void check_local(std::int64_t micro_batches, at::ScalarType matrix_dtype) {
  WorkingWeights weights = bf16_weights();
  LocalGradients local(weights);
  std::vector<at::Tensor> sums(uses.size());
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    std::vector<at::Tensor> fresh;
    for (const auto& leaf : weights.leaves()) {
      fresh.push_back(leaf.detach().clone().requires_grad_());
    }
    loss_of(fresh, 0.25 * static_cast<double>(i + 1)).backward();
    for (std::size_t use = 0; use < uses.size(); ++use) {
      const at::Tensor part = fresh[use].grad().to(at::kFloat);
      sums[use] = sums[use].defined() ? sums[use] + part : part;
    }
    local.begin_backward(i == 0, i + 1 == micro_batches);
    loss_of(weights.leaves(), 0.25 * static_cast<double>(i + 1)).backward();
  }
  const auto& gradients = local.gradients();
  EXPECT_EQ(gradients[0].scalar_type(), at::kFloat);  // two uses
  EXPECT_EQ(gradients[1].scalar_type(), matrix_dtype);
  EXPECT_EQ(gradients[2].scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(gradients[1].to(at::kFloat), sums[1]));
  EXPECT_TRUE(at::equal(gradients[2], sums[2]));
  EXPECT_TRUE(at::allclose(gradients[0], sums[0] + sums[3], 1e-6, 1e-6));
  std::int64_t bytes = 0;
  for (const auto& gradient : gradients) bytes += static_cast<std::int64_t>(gradient.nbytes());
  EXPECT_EQ(local.total_bytes(micro_batches), bytes);
}

TEST(LocalGradients, HandsOnWhatIsNotSummed) { check_local(1, at::kBFloat16); }
TEST(LocalGradients, SumsMicroBatchesInFp32) { check_local(3, at::kFloat); }

}  // namespace
}  // namespace trainsuite
