// Fused LayerNorm, residual sum, bias and GELU against PyTorch's own operators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/error.h"
#include "model/bias_gelu.h"
#include "model/layer_norm.h"

namespace trainsuite {
namespace {

using Tensors = std::vector<at::Tensor>;

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape).to(dtype).requires_grad_();
}

void expect_near(const Tensors& mine, const Tensors& theirs, double tolerance) {
  ASSERT_EQ(mine.size(), theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    EXPECT_LE(difference(mine[i], theirs[i]), tolerance) << "tensor " << i;
    EXPECT_EQ(mine[i].scalar_type(), theirs[i].scalar_type()) << "tensor " << i;
  }
}

class Dtype : public testing::TestWithParam<at::ScalarType> {
 protected:
  /// Rounding of the result alone: statistics and sums are in fp32 on both sides.
  double tolerance() const { return GetParam() == at::kFloat ? 1e-6 : 4e-3; }
};
INSTANTIATE_TEST_SUITE_P(FusedOps, Dtype, testing::Values(at::kFloat, at::kBFloat16));

TEST_P(Dtype, AddLayerNorm) {
  const std::int64_t rows = 19, width = 48;
  const Tensors in{leaf({rows, width}, at::kFloat), leaf({rows, width}, GetParam()),
                   leaf({width}, GetParam()), leaf({width}, at::kFloat), leaf({width}, at::kFloat)};
  const Tensors upstream{at::randn({rows, width}), at::randn({rows, width}).to(GetParam())};
  const auto [sum, normalized] = add_layer_norm(in[0], in[1], in[2], in[3], in[4]);
  const at::Tensor their_sum = in[0] + in[1] + in[2];
  const at::Tensor theirs = at::layer_norm(their_sum, {width}, in[3], in[4], 1e-5).to(GetParam());
  expect_near({sum, normalized}, {their_sum, theirs}, tolerance());
  expect_near(torch::autograd::grad({sum, normalized}, in, upstream),
              torch::autograd::grad({their_sum, theirs}, in, upstream), tolerance());
}

TEST_P(Dtype, AddLayerNormWhoseSumOrResultIsUnused) {
  const std::int64_t rows = 5, width = 12;
  const Tensors in{leaf({rows, width}, at::kFloat), leaf({rows, width}, GetParam()),
                   leaf({width}, GetParam()), leaf({width}, at::kFloat), leaf({width}, at::kFloat)};
  const auto [sum, normalized] = add_layer_norm(in[0], in[1], in[2], in[3], in[4]);
  const at::Tensor their_sum = in[0] + in[1] + in[2];
  const at::Tensor theirs = at::layer_norm(their_sum, {width}, in[3], in[4], 1e-5).to(GetParam());
  const at::Tensor upstream = at::randn({rows, width});
  expect_near(torch::autograd::grad({normalized}, in, {upstream.to(GetParam())}, true),
              torch::autograd::grad({theirs}, in, {upstream.to(GetParam())}, true), tolerance());
  const Tensors of_sum{in[0], in[1], in[2]};
  expect_near(torch::autograd::grad({sum}, of_sum, {upstream}),
              torch::autograd::grad({their_sum}, of_sum, {upstream}), tolerance());
}

TEST_P(Dtype, LayerNormCast) {
  const std::int64_t rows = 19, width = 48;
  const Tensors in{leaf({rows, width}, at::kFloat), leaf({width}, at::kFloat),
                   leaf({width}, at::kFloat)};
  const at::Tensor upstream = at::randn({rows, width}).to(GetParam()),
                   of_x = at::randn({rows, width});
  const auto [x, mine] = layer_norm_cast(in[0], in[1], in[2], GetParam());
  const at::Tensor theirs = at::layer_norm(in[0], {width}, in[1], in[2], 1e-5).to(GetParam());
  expect_near({x, mine}, {in[0], theirs}, tolerance());
  expect_near(torch::autograd::grad({mine}, in, {upstream}, true),
              torch::autograd::grad({theirs}, in, {upstream}, true), tolerance());
  // What else uses x: both gradients together, or that of x alone.
  expect_near(torch::autograd::grad({mine, x}, in, {upstream, of_x}, true),
              torch::autograd::grad({theirs, in[0]}, in, {upstream, of_x}), tolerance());
  EXPECT_TRUE(at::equal(torch::autograd::grad({x}, {in[0]}, {of_x})[0], of_x));
}

TEST_P(Dtype, BiasGelu) {
  const std::int64_t rows = 19, width = 48;
  const Tensors in{leaf({rows, width}, GetParam()), leaf({width}, GetParam())};
  const at::Tensor upstream = at::randn({rows, width}).to(GetParam());
  const at::Tensor mine = bias_gelu(in[0], in[1]);
  const at::Tensor theirs =
      at::gelu(in[0].to(at::kFloat) + in[1].to(at::kFloat), "tanh").to(GetParam());
  expect_near({mine}, {theirs}, tolerance());
  expect_near(torch::autograd::grad({mine}, in, {upstream}),
              torch::autograd::grad({theirs}, in, {upstream}), tolerance());
}

TEST(FusedOps, AnyLayout) {
  const at::Tensor weight = leaf({12}, at::kFloat), bias = leaf({12}, at::kFloat);
  const at::Tensor plain = at::randn({5, 12});
  const at::Tensor strided = plain.t().contiguous().t();
  ASSERT_FALSE(strided.is_contiguous());
  EXPECT_TRUE(at::equal(std::get<1>(layer_norm_cast(strided, weight, bias, at::kFloat)),
                        std::get<1>(layer_norm_cast(plain, weight, bias, at::kFloat))));
  EXPECT_TRUE(at::equal(bias_gelu(strided, bias), bias_gelu(plain, bias)));
}

TEST(FusedOps, NoRows) {
  const at::Tensor x = leaf({0, 12}, at::kFloat), weight = leaf({12}, at::kFloat);
  const at::Tensor out = std::get<1>(layer_norm_cast(x, weight, weight, at::kBFloat16));
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{0, 12}));
  EXPECT_EQ(bias_gelu(x, weight).sizes(), (at::IntArrayRef{0, 12}));
}

TEST(FusedOps, RefuseBadArguments) {
  const at::Tensor x = at::randn({5, 12}), vector = at::randn({12}), half = x.to(at::kBFloat16);
  EXPECT_THROW(layer_norm_cast(half, vector, vector, at::kBFloat16), Error);
  EXPECT_THROW(layer_norm_cast(x, vector.narrow(0, 0, 8), vector, at::kFloat), Error);
  EXPECT_THROW(layer_norm_cast(x, vector, vector, at::kLong), Error);
  EXPECT_THROW(add_layer_norm(x, half, vector, vector, vector), Error);
  EXPECT_THROW(add_layer_norm(x, half.narrow(0, 0, 4), vector.to(at::kBFloat16), vector, vector),
               Error);
  EXPECT_THROW(bias_gelu(half, vector), Error);
  EXPECT_THROW(bias_gelu(x, vector.narrow(0, 0, 8)), Error);
}

}  // namespace
}  // namespace trainsuite
