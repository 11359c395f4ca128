#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "train/optimizer.h"

namespace trainsuite {
namespace {

TEST(AdamW, ForeachStepsAsFusedDoes) {
  at::manual_seed(1);
  std::vector<at::Tensor> fused{at::randn({5, 7}), at::randn({3})}, foreach;
  for (const auto& p : fused) foreach.push_back(p.clone());
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

}  // namespace
}  // namespace trainsuite
