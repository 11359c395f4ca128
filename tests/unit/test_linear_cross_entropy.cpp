// linear_cross_entropy against PyTorch's own linear and cross_entropy_loss.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "core/error.h"
#include "model/linear_cross_entropy.h"

namespace trainsuite {
namespace {

struct Problem {
  at::Tensor x, weight, targets;
  double scale = 1;
};

struct Answer {
  at::Tensor loss, x_gradient, weight_gradient;
};

Problem problem(std::int64_t tokens, std::int64_t width, std::int64_t vocabulary,
                at::ScalarType dtype, double scale) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype);
  return {at::randn({tokens, width}).to(options).requires_grad_(),
          at::randn({vocabulary, width}).to(options).requires_grad_(),
          at::randint(vocabulary, {tokens}, at::kLong), scale};
}

Answer answer_of(const at::Tensor& loss, const Problem& p, double upstream) {
  const auto gradients =
      torch::autograd::grad({loss}, {p.x, p.weight}, {at::full({}, upstream, at::kFloat)});
  return {loss.detach(), gradients[0], gradients[1]};
}

Answer mine(const Problem& p, double upstream = 1) {
  return answer_of(linear_cross_entropy(p.x, p.weight, p.targets, p.scale), p, upstream);
}

/// PyTorch's answer: in fp64 where `exact`, else in the dtype given.
Answer reference(const Problem& p, double upstream = 1, bool exact = true) {
  const at::Tensor logits = exact ? at::linear(p.x.to(at::kDouble), p.weight.to(at::kDouble))
                                  : at::linear(p.x, p.weight).to(at::kFloat);
  const at::Tensor loss =
      at::cross_entropy_loss(logits, p.targets, {}, at::Reduction::Sum, -100) * p.scale;
  return answer_of(loss.to(at::kFloat), p, upstream);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

void expect_near(const Answer& a, const Answer& b, double tolerance) {
  EXPECT_LE(difference(a.loss, b.loss), tolerance);
  EXPECT_LE(difference(a.x_gradient, b.x_gradient), tolerance);
  EXPECT_LE(difference(a.weight_gradient, b.weight_gradient), tolerance);
}

/// Each error against fp64 is within 1.5 of what PyTorch's own operators make in the same dtype.
void expect_as_near_as_pytorchs(const Problem& p) {
  const Answer exact = reference(p), theirs = reference(p, 1, false), own = mine(p);
  const auto expect = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    EXPECT_LE(difference(a, b), 1.5 * difference(c, b) + 1e-6);
  };
  expect(own.loss, exact.loss, theirs.loss);
  expect(own.x_gradient, exact.x_gradient, theirs.x_gradient);
  expect(own.weight_gradient, exact.weight_gradient, theirs.weight_gradient);
  EXPECT_EQ(own.x_gradient.scalar_type(), p.x.scalar_type());
  EXPECT_EQ(own.weight_gradient.scalar_type(), p.weight.scalar_type());
  EXPECT_EQ(own.loss.scalar_type(), at::kFloat);
}

class Vocabulary : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(LinearCrossEntropy, Vocabulary,
                         testing::Values(2, 3, 8, 509, 1024, 50257));

TEST_P(Vocabulary, Fp32) {
  expect_as_near_as_pytorchs(problem(37, 24, GetParam(), at::kFloat, 0.25));
}

TEST_P(Vocabulary, Bf16) {
  expect_as_near_as_pytorchs(problem(37, 24, GetParam(), at::kBFloat16, 0.25));
}

TEST(LinearCrossEntropy, ScaleAndUpstreamMultiply) {
  const Problem p = problem(37, 24, 101, at::kFloat, 0.3);
  expect_near(mine(p, 3), reference(p, 3), 2e-6);
}

TEST(LinearCrossEntropy, ASingleClassIsCertain) {
  const Answer own = mine(problem(37, 24, 1, at::kFloat, 0.25));
  EXPECT_EQ(own.loss.item<float>(), 0);
  EXPECT_EQ(own.x_gradient.abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropy, IgnoresMarkedTargets) {
  Problem p = problem(40, 16, 50, at::kFloat, 0.1);
  p.targets.slice(0, 0, 40, 3).fill_(-100);
  const Answer own = mine(p);
  expect_near(own, reference(p), 2e-6);
  EXPECT_EQ(own.x_gradient[0].abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropy, AllIgnoredIsZeroNotNan) {
  Problem p = problem(5, 16, 50, at::kFloat, 0.1);
  p.targets.fill_(-100);
  const Answer own = mine(p);
  EXPECT_EQ(own.loss.item<float>(), 0);
  EXPECT_EQ(own.x_gradient.abs().max().item<float>(), 0);
  EXPECT_EQ(own.weight_gradient.abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropy, NoTokens) {
  const Answer own = mine(problem(0, 16, 50, at::kFloat, 0.1));
  EXPECT_EQ(own.loss.item<float>(), 0);
  EXPECT_EQ(own.x_gradient.sizes(), (at::IntArrayRef{0, 16}));
  EXPECT_EQ(own.weight_gradient.abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  Problem p = problem(20, 16, 50, at::kFloat, 1);
  p.x = (p.x.detach() * 300).requires_grad_();
  expect_near(mine(p), reference(p), 1e-5);
}

TEST(LinearCrossEntropy, AnyLayout) {
  const Problem p = problem(33, 20, 70, at::kFloat, 0.5);
  Problem q = p;
  q.x = at::cat({p.x.detach(), p.x.detach()}, 1).narrow(1, 0, 20).requires_grad_();
  q.weight = p.weight.detach().t().contiguous().t().requires_grad_();
  q.targets = at::stack({p.targets, p.targets}, 1).select(1, 1);
  ASSERT_FALSE(q.x.is_contiguous() || q.weight.is_contiguous() || q.targets.is_contiguous());
  expect_near(mine(q), reference(p), 2e-6);
}

TEST(LinearCrossEntropy, ManyBlocksOfRows) {
  // More rows than the CPU kernel takes at once (4 Mi elements of 50257 columns: 83 rows).
  Problem p = problem(200, 4, 50257, at::kFloat, 0.01);
  p.targets[100] = -100;
  expect_as_near_as_pytorchs(p);
}

TEST(LinearCrossEntropy, WithoutGradientTheLossIsTheSame) {
  const Problem p = problem(33, 20, 70, at::kFloat, 0.5);
  const at::Tensor loss = linear_cross_entropy(p.x.detach(), p.weight.detach(), p.targets, p.scale);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(loss.item<float>(), mine(p).loss.item<float>());
}

TEST(LinearCrossEntropy, OnlyTheWantedGradient) {
  Problem p = problem(33, 20, 70, at::kFloat, 0.5);
  const Answer both = mine(p);
  p.weight = p.weight.detach();
  const at::Tensor loss = linear_cross_entropy(p.x, p.weight, p.targets, p.scale);
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {p.x})[0], both.x_gradient));
}

TEST(LinearCrossEntropy, RefusesBadArguments) {
  Problem p = problem(4, 8, 10, at::kFloat, 1);
  at::Tensor beyond = p.targets.clone();
  beyond[2] = 10;
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight, beyond, 1), Error);
  beyond[2] = -1;
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight, beyond, 1), Error);
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight, p.targets.to(at::kInt), 1), Error);
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight.to(at::kBFloat16), p.targets, 1), Error);
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight.narrow(1, 0, 4), p.targets, 1), Error);
  EXPECT_THROW(linear_cross_entropy(p.x, p.weight, p.targets.narrow(0, 0, 3), 1), Error);
}

/// A sink of one parameter.
struct Sink final : GradientSink {
  Sum sum(std::size_t) override {
    const bool fresh = !value.defined();
    if (fresh) value = at::full(shape, std::numeric_limits<float>::quiet_NaN());
    return {value, fresh};
  }
  std::vector<std::int64_t> shape;
  at::Tensor value;
};

class Chunks : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtype, Chunks, testing::Values(at::kFloat, at::kBFloat16));

TEST_P(Chunks, EqualTheWhole) {
  const std::int64_t tokens = 23, vocabulary = 301;
  const Problem p = problem(tokens, 16, vocabulary, GetParam(), 0.25);
  p.targets.slice(0, 3, 9).fill_(-100);
  const Answer whole = mine(p, 2);
  // A chunk's sum over rows is rounded to the weight's dtype before the next is added.
  const double tolerance = GetParam() == at::kFloat ? 1e-6 : 8e-3;
  const auto row = vocabulary * static_cast<std::int64_t>(p.weight.element_size());
  for (const std::int64_t chunk : {std::int64_t{1}, row, 5 * row, 22 * row, 23 * row}) {
    expect_near(answer_of(chunked_cross_entropy(p.x, p.weight, p.targets, p.scale, chunk), p, 2),
                whole, tolerance);
  }
}

TEST_P(Chunks, AFrozenWeightLeavesXsGradientAlone) {
  Problem p = problem(23, 16, 301, GetParam(), 0.25);
  const Answer whole = mine(p, 2);
  p.weight = p.weight.detach();
  const at::Tensor loss = chunked_cross_entropy(p.x, p.weight, p.targets, p.scale, 5000);
  EXPECT_LE(difference(loss, whole.loss), 1e-6);
  const at::Tensor gradient =
      torch::autograd::grad({loss}, {p.x}, {at::full({}, 2.0, at::kFloat)})[0];
  EXPECT_LE(difference(gradient, whole.x_gradient), GetParam() == at::kFloat ? 1e-6 : 8e-3);
}

TEST_P(Chunks, ASinkTakesTheWeightsGradientInFp32) {
  const Problem p = problem(23, 16, 301, GetParam(), 0.25);
  const Answer whole = mine(p, 2);
  Sink sink;
  sink.shape = {301, 16};
  for (const std::int64_t chunk : {5000, 1 << 20}) {
    const at::Tensor loss =
        chunked_cross_entropy(p.x, p.weight, p.targets, p.scale, chunk, {&sink, 0});
    const auto gradients =
        torch::autograd::grad({loss}, {p.x, p.weight}, {at::full({}, 2.0, at::kFloat)},
                              std::nullopt, false, /*allow_unused=*/true);
    EXPECT_FALSE(gradients[1].defined());
    EXPECT_LE(difference(gradients[0], whole.x_gradient), GetParam() == at::kFloat ? 1e-6 : 8e-3);
  }
  EXPECT_LE(difference(sink.value, 2 * whole.weight_gradient),
            GetParam() == at::kFloat ? 1e-6 : 8e-3);
}

TEST(ChunkedCrossEntropy, AllIgnoredIsNothing) {
  const Problem p = problem(9, 8, 40, at::kFloat, 1);
  p.targets.fill_(-100);
  const Answer answer =
      answer_of(chunked_cross_entropy(p.x, p.weight, p.targets, p.scale, 400), p, 1);
  EXPECT_EQ(answer.loss.item<float>(), 0);
  EXPECT_EQ(answer.weight_gradient.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace trainsuite
