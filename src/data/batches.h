#pragma once
// Which examples a rank's micro-batches hold, and those as tensors.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/examples.h"

namespace trainsuite {

struct BatchOptions {
  std::int64_t micro_batch = 1, accumulate = 1;
  int rank = 0, ranks = 1;
  bool answers_only = false;  // labels: tokens of answers, else all
  bool packed = false;        // examples one after the other in one row, without padding
  std::vector<std::int64_t> length_buckets{};  // padded lengths, rising; empty: the longest's
  std::int64_t pack_to = 1;                    // packed rows have a multiple of this many tokens
};

/// One micro-batch. Padded: [examples, length], padding on the right with token 0. Packed: [1,
/// tokens], and where each example begins. The target of a token is the next of its example,
/// -100 where there is none or it does not count. Packed to a multiple of more than 1: the padding
/// stands last as one more example, after as many empty ones as make micro_batch + 1 of them, so
/// that rows of one length have one shape in all.
struct Batch {
  at::Tensor tokens, targets;  // int64
  at::Tensor positions;        // int64 [tokens], packed only: places within the examples
  at::Tensor bounds;  // int32 [examples + 1], packed only: where examples begin, and the end
  std::vector<std::int64_t> lengths;  // of the examples
  std::int64_t computed_tokens = 0, effective_tokens = 0, labels = 0;
  bool empty() const { return lengths.empty(); }
};

/// Steps through the examples in order, pass after pass. Of a step's examples, number (m x ranks +
/// r) x micro_batch + i is number i of rank r's micro-batch m; a pass's last step takes what is
/// left, with smaller or empty micro-batches.
class BatchPlan {
 public:
  /// Throws Error without examples, or where none has a label. `examples` must outlive the plan.
  BatchPlan(const Examples& examples, BatchOptions options);

  std::int64_t steps_per_pass() const;
  /// Labels of the whole step, over all ranks and micro-batches.
  std::int64_t step_labels(std::int64_t step) const;
  /// This rank's micro-batch, on the CPU; pinned where `pinned`.
  Batch batch(std::int64_t step, std::int64_t micro_step, bool pinned = false) const;
  /// This rank's sums of a step.
  std::int64_t computed_tokens(std::int64_t step) const;
  std::int64_t effective_tokens(std::int64_t step) const;
  std::int64_t rank_labels(std::int64_t step) const;
  /// Tokens of this rank's largest micro-batch in the first `steps` steps.
  std::int64_t largest_micro_batch(std::int64_t steps) const;
  /// Examples without a label: they count nothing.
  std::int64_t examples_without_labels() const { return without_labels_; }

 private:
  struct Range {
    std::int64_t first, count;
  };
  std::int64_t per_step() const {
    return options_.micro_batch * options_.accumulate * options_.ranks;
  }
  Range step_examples(std::int64_t step) const;
  Range micro_examples(std::int64_t step, std::int64_t micro_step) const;
  std::int64_t padded_length(Range range) const;
  std::int64_t own_tokens(Range range) const;
  std::int64_t batch_tokens(Range range) const;  // of the micro-batch that they make, padding too
  template <class Get>
  std::int64_t rank_sum(std::int64_t step, Get get) const;

  const Examples& examples_;
  BatchOptions options_;
  std::vector<std::int64_t> labels_;  // of each example
  std::int64_t without_labels_ = 0;
};

/// Examples [first, first + count) as one micro-batch.
Batch make_batch(const Examples& examples, std::int64_t first, std::int64_t count,
                 std::int64_t padded_length, const BatchOptions& options, bool pinned);

/// For each token of example i the target: the next token, or -100.
std::vector<std::int64_t> targets_of(const Examples& examples, std::int64_t i, bool answers_only);

}  // namespace trainsuite
