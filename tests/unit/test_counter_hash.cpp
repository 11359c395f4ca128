#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/error.h"
#include "model/counter_hash.h"
#include "model/counter_hash_kernel.h"

namespace trainsuite {
namespace {

const at::Device kCpu(at::kCPU);

std::int64_t hash_of(const at::Tensor& tensor) { return tensor_hash(tensor).item<std::int64_t>(); }

at::Tensor parameter(std::int64_t elements, std::int64_t seed, std::int64_t index, double std) {
  at::Tensor out = at::empty({elements});
  fill_initial_parameter_(out, seed, index, std);
  return out;
}

TEST(Mix, IsSplitmix64) {
  // The first outputs of the reference generator from seed 1234567 (Vigna, splitmix64.c).
  const std::uint64_t seed = 1234567, step = 0x9e3779b97f4a7c15ULL;
  EXPECT_EQ(mix(seed), 6457827717110365317ULL);
  EXPECT_EQ(mix(seed + step), 3203168211198807973ULL);
}

TEST(RandomTokens, AnExampleDoesNotDependOnWhoAsksForIt) {
  const at::Tensor all = random_tokens(5, 3, 0, 8, 33, 50304, kCpu);
  EXPECT_TRUE(at::equal(random_tokens(5, 3, 4, 4, 33, 50304, kCpu), all.narrow(0, 4, 4)));
  EXPECT_TRUE(
      at::equal(random_tokens(5, 3, 7, 1, 10, 50304, kCpu), all.narrow(0, 7, 1).narrow(1, 0, 10)));
}

TEST(RandomTokens, SeedStepExampleAndPositionAllMatter) {
  const at::Tensor tokens = random_tokens(1, 0, 0, 2, 64, 50304, kCpu);
  EXPECT_FALSE(at::equal(tokens, random_tokens(2, 0, 0, 2, 64, 50304, kCpu)));
  EXPECT_FALSE(at::equal(tokens, random_tokens(1, 1, 0, 2, 64, 50304, kCpu)));
  EXPECT_FALSE(at::equal(tokens[0], tokens[1]));
  EXPECT_GT(std::get<0>(at::_unique(tokens[0])).numel(), 60);
}

TEST(RandomTokens, AreUniformOverTheVocabulary) {
  const std::int64_t vocabulary = 97, count = 97 * 4000;
  const at::Tensor tokens = random_tokens(1, 0, 0, 97, 4000, vocabulary, kCpu);
  EXPECT_GE(tokens.min().item<std::int64_t>(), 0);
  EXPECT_LT(tokens.max().item<std::int64_t>(), vocabulary);
  const at::Tensor counts = at::bincount(tokens.flatten(), {}, vocabulary).to(at::kDouble);
  const double expected = static_cast<double>(count) / static_cast<double>(vocabulary);
  const double chi_squared = (counts - expected).square().sum().item<double>() / expected;
  // 96 degrees of freedom: mean 96, deviation 14.
  EXPECT_GT(chi_squared, 96 - 5 * 14);
  EXPECT_LT(chi_squared, 96 + 5 * 14);
}

TEST(RandomTokens, NoExamplesAndBadArguments) {
  EXPECT_EQ(random_tokens(1, 0, 0, 0, 5, 10, kCpu).numel(), 0);
  EXPECT_EQ(random_tokens(1, 0, 0, 5, 0, 10, kCpu).numel(), 0);
  EXPECT_THROW(random_tokens(1, 0, 0, 1, 1, 0, kCpu), Error);
  EXPECT_THROW(random_tokens(1, 0, 0, -1, 1, 10, kCpu), Error);
  EXPECT_TRUE(at::equal(random_tokens(1, 0, 0, 2, 3, 1, kCpu), at::zeros({2, 3}, at::kLong)));
}

TEST(InitialParameter, HasTheAskedMomentsAndBound) {
  const double std = 0.02;
  const at::Tensor values = parameter(400000, 1, 4, std).to(at::kDouble) / std;
  EXPECT_NEAR(values.mean().item<double>(), 0, 5 / std::sqrt(400000.0));
  EXPECT_NEAR(values.std().item<double>(), 1, 0.01);
  // Four uniforms: kurtosis 3 - 1.2 / 4.
  EXPECT_NEAR(values.pow(4).mean().item<double>(), 2.7, 0.05);
  EXPECT_LE(values.abs().max().item<double>(), 3.4642);
}

TEST(InitialParameter, SeedAndIndexMatterAndElementsAreUncorrelated) {
  const at::Tensor values = parameter(100000, 1, 4, 1);
  EXPECT_TRUE(at::equal(values, parameter(100000, 1, 4, 1)));
  EXPECT_TRUE(at::equal(values.narrow(0, 0, 10), parameter(10, 1, 4, 1)));
  for (const at::Tensor& other :
       {parameter(100000, 2, 4, 1), parameter(100000, 1, 5, 1), values.roll(1)}) {
    EXPECT_LT(std::abs((values * other).mean().item<double>()), 5 / std::sqrt(100000.0));
  }
}

TEST(InitialParameter, RefusesWhatItCannotFill) {
  at::Tensor half = at::empty({4}, at::kBFloat16);
  EXPECT_THROW(fill_initial_parameter_(half, 1, 0, 1), Error);
  at::Tensor strided = at::empty({4, 4}).t().narrow(0, 0, 2);
  EXPECT_THROW(fill_initial_parameter_(strided, 1, 0, 1), Error);
}

TEST(TensorHash, SeesEveryByteItsPlaceAndTheLength) {
  // Whole words: a hash that forgot their order would not see them reversed.
  const at::Tensor values = at::arange(1000, at::kLong);
  const std::int64_t hash = hash_of(values);
  EXPECT_EQ(hash_of(values.clone()), hash);
  for (const std::int64_t place : {0, 1, 500, 999}) {
    at::Tensor changed = values.clone();
    changed[place] += 1;
    EXPECT_NE(hash_of(changed), hash) << place;
  }
  EXPECT_NE(hash_of(values.flip(0)), hash);
  EXPECT_NE(hash_of(at::cat({values, at::zeros({1}, at::kLong)})), hash);
  std::set<std::int64_t> of_zeros;
  for (std::int64_t n = 0; n < 20; ++n) of_zeros.insert(hash_of(at::zeros({n}, at::kByte)));
  EXPECT_EQ(of_zeros.size(), 20u);
}

TEST(TensorHash, IsOfTheLogicalValuesWhateverTheLayout) {
  const at::Tensor values = at::randn({37, 21});
  EXPECT_EQ(hash_of(values.t().contiguous().t()), hash_of(values));
  // A view at an odd place of its storage.
  const at::Tensor half = at::randn({101}).to(at::kBFloat16);
  EXPECT_EQ(hash_of(half.narrow(0, 1, 100)), hash_of(half.narrow(0, 1, 100).clone()));
  for (const at::ScalarType dtype : {at::kByte, at::kLong, at::kDouble, at::kBool}) {
    EXPECT_EQ(tensor_hash(at::ones({5}).to(dtype)).scalar_type(), at::kLong);
  }
}

TEST(TensorHash, DoesNotDependOnTheNumberOfThreads) {
  const at::Tensor values = at::randn({1 << 18});
  const int before = at::get_num_threads();
  std::set<std::int64_t> hashes;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    hashes.insert(hash_of(values));
  }
  at::set_num_threads(before);
  EXPECT_EQ(hashes.size(), 1u);
}

}  // namespace
}  // namespace trainsuite
