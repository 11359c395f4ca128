#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "data/batches.h"

namespace trainsuite {
namespace {

/// Examples of these lengths; ids count on from 1; the answer is all but the first two tokens.
Examples numbered(const std::vector<std::int64_t>& lengths) {
  Examples examples;
  std::int32_t next = 1;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
    std::iota(ids.begin(), ids.end(), next);
    next += static_cast<std::int32_t>(length);
    const Span answer{std::min<std::int64_t>(2, length), length};
    examples.add(ids, {&answer, 1});
  }
  return examples;
}

std::vector<std::int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  const auto* first = flat.const_data_ptr<std::int64_t>();
  return {first, first + flat.numel()};
}

using Longs = std::vector<std::int64_t>;

TEST(Batches, TargetsAreTheNextTokensAndTheLastHasNone) {
  const Examples examples = numbered({4, 1});
  EXPECT_EQ(targets_of(examples, 0, false), (Longs{2, 3, 4, -100}));
  EXPECT_EQ(targets_of(examples, 0, true), (Longs{-100, 3, 4, -100}));
  EXPECT_EQ(targets_of(examples, 1, false), (Longs{-100}));
}

TEST(Batches, PaddingStandsRightAndHasNoTarget) {
  const Examples examples = numbered({3, 5});
  const Batch batch = BatchPlan(examples, {.micro_batch = 2}).batch(0, 0);
  EXPECT_EQ(batch.tokens.sizes(), (Longs{2, 5}));
  EXPECT_EQ(values(batch.tokens[0]), (Longs{1, 2, 3, 0, 0}));
  EXPECT_EQ(values(batch.targets[0]), (Longs{2, 3, -100, -100, -100}));
  EXPECT_EQ(values(batch.targets[1]), (Longs{5, 6, 7, 8, -100}));
  EXPECT_EQ(batch.computed_tokens, 10);
  EXPECT_EQ(batch.effective_tokens, 8);
  EXPECT_EQ(batch.labels, 6);
}

TEST(Batches, PackedExamplesFollowEachOther) {
  const Examples examples = numbered({3, 2});
  const Batch batch = BatchPlan(examples, {.micro_batch = 2, .packed = true}).batch(0, 0);
  EXPECT_EQ(values(batch.tokens), (Longs{1, 2, 3, 4, 5}));
  EXPECT_EQ(values(batch.targets), (Longs{2, 3, -100, 5, -100}));
  EXPECT_EQ(values(batch.positions), (Longs{0, 1, 2, 0, 1}));
  EXPECT_EQ(values(batch.bounds), (Longs{0, 3, 5}));
  EXPECT_EQ(batch.lengths, (Longs{3, 2}));
  EXPECT_EQ(batch.computed_tokens, 5);
}

TEST(Batches, PackedRowsPaddedToAMultipleHaveOneShape) {
  const Examples examples = numbered({3, 2, 4, 1});
  const BatchPlan plan(examples, {.micro_batch = 3, .packed = true, .pack_to = 8});
  const Batch whole = plan.batch(0, 0), rest = plan.batch(1, 0);
  EXPECT_EQ(values(whole.tokens), (Longs{1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(whole.targets).back(), -100);
  EXPECT_EQ(values(whole.positions), (Longs{0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(whole.bounds), (Longs{0, 3, 5, 9, 16}));
  EXPECT_EQ(whole.lengths, (Longs{3, 2, 4, 7}));
  EXPECT_EQ(values(rest.bounds), (Longs{0, 1, 1, 1, 8}));
  EXPECT_EQ(plan.computed_tokens(0), 16);
  EXPECT_EQ(plan.effective_tokens(0), 9);
  EXPECT_EQ(plan.largest_micro_batch(1), 16);
}

TEST(Batches, BucketsRoundLengthsUp) {
  const Examples examples = numbered({3, 9, 20});
  const BatchOptions options{.micro_batch = 1, .length_buckets = {4, 16}};
  const BatchPlan plan(examples, options);
  EXPECT_EQ(plan.batch(0, 0).computed_tokens, 4);
  EXPECT_EQ(plan.batch(1, 0).computed_tokens, 16);
  EXPECT_EQ(plan.batch(2, 0).computed_tokens, 20);  // beyond every bucket
}

TEST(Batches, RanksAndMicroBatchesShareAStepOut) {
  const Examples examples = numbered(Longs(13, 2));
  Longs first_tokens;
  for (std::int64_t micro = 0; micro < 2; ++micro) {
    for (int rank = 0; rank < 2; ++rank) {
      const BatchPlan plan(examples, {.micro_batch = 2, .accumulate = 2, .rank = rank, .ranks = 2});
      EXPECT_EQ(plan.steps_per_pass(), 2);
      const Batch batch = plan.batch(0, micro);
      first_tokens.push_back(values(batch.tokens).front());
    }
  }
  EXPECT_EQ(first_tokens, (Longs{1, 5, 9, 13}));
}

TEST(Batches, TheLastStepOfAPassTakesWhatIsLeft) {
  const Examples examples = numbered(Longs(11, 3));
  std::int64_t counted = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const BatchPlan plan(examples, {.micro_batch = 2, .accumulate = 2, .rank = rank, .ranks = 2});
    EXPECT_EQ(plan.step_labels(0), 16);
    EXPECT_EQ(plan.step_labels(1), 6);
    EXPECT_EQ(plan.step_labels(3), 6);  // second pass
    counted += plan.rank_labels(1);
    EXPECT_EQ(plan.batch(1, 0).lengths.size(), rank == 0 ? 2U : 1U);
    EXPECT_TRUE(plan.batch(1, 1).empty());
    EXPECT_EQ(plan.batch(1, 1).labels, 0);
    EXPECT_EQ(plan.effective_tokens(1), rank == 0 ? 6 : 3);
  }
  EXPECT_EQ(counted, 6);
}

TEST(Batches, ExamplesWithoutLabelsAreCountedAndNothingElse) {
  const Examples examples = numbered({1, 4, 0, 1});
  const BatchPlan plan(examples, {.micro_batch = 4});
  EXPECT_EQ(plan.examples_without_labels(), 3);
  EXPECT_EQ(plan.step_labels(0), 3);
  EXPECT_THROW(BatchPlan(numbered({}), {}), Error);
  EXPECT_THROW(BatchPlan(numbered({1, 1}), {}), Error);
}

TEST(SyntheticData, HasThePublishedLengths) {
  std::int64_t sum = 0, least = 1 << 20, most = 0;
  constexpr std::int64_t count = 4000;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t length = synthetic_length(1, i);
    sum += length, least = std::min(least, length), most = std::max(most, length);
  }
  EXPECT_NEAR(static_cast<double>(sum) / count, 188, 3);
  EXPECT_GE(least, 34);
  EXPECT_LE(most, 512);
  EXPECT_GT(most, 480);
}

TEST(SyntheticData, AnExampleIsTheSameWhateverTheCounts) {
  const TrainingData few = synthetic_data(3, 2, 2, 100), more = synthetic_data(3, 6, 1, 100);
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto a = few.train.example(i), b = more.train.example(i);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    const auto held = few.held_out.example(i), later = more.train.example(2 + i);
    EXPECT_TRUE(std::equal(held.begin(), held.end(), later.begin(), later.end()));
  }
  for (const std::int32_t id : more.train.ids) EXPECT_LT(id, 100);
}

}  // namespace
}  // namespace trainsuite
