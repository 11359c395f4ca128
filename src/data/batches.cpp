#include "data/batches.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kIgnored = -100;

at::Tensor host_tensor(at::IntArrayRef shape, std::int64_t value, bool pinned) {
  return at::full(shape, value, at::TensorOptions().dtype(at::kLong).pinned_memory(pinned));
}

/// Copies values to element `first` of a contiguous tensor.
template <class Values>
void put(const at::Tensor& tensor, std::int64_t first, const Values& values) {
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<std::int64_t>() + first);
}

/// Running sums of the lengths, from 0.
at::Tensor bounds_of(const std::vector<std::int64_t>& lengths, bool pinned) {
  const auto count = static_cast<std::int64_t>(lengths.size());
  const at::Tensor bounds =
      at::zeros({count + 1}, at::TensorOptions().dtype(at::kInt).pinned_memory(pinned));
  auto* bound = bounds.mutable_data_ptr<std::int32_t>();
  for (const std::int64_t length : lengths) {
    bound[1] = bound[0] + static_cast<std::int32_t>(length);
    ++bound;
  }
  return bounds;
}

std::int64_t packed_tokens(std::int64_t tokens, const BatchOptions& options) {
  return (tokens + options.pack_to - 1) / options.pack_to * options.pack_to;
}

/// The padding of a packed row, as its last example.
void add_padding(Batch& batch, const BatchOptions& options) {
  if (options.pack_to == 1) return;
  batch.lengths.resize(static_cast<std::size_t>(options.micro_batch), 0);
  batch.lengths.push_back(batch.computed_tokens - batch.effective_tokens);
}

}  // namespace

std::vector<std::int64_t> targets_of(const Examples& examples, std::int64_t i, bool answers_only) {
  const auto tokens = examples.example(i);
  std::vector<std::int64_t> targets(tokens.size(), kIgnored);
  if (!answers_only) {
    for (std::size_t p = 0; p + 1 < tokens.size(); ++p) targets[p] = tokens[p + 1];
    return targets;
  }
  for (const Span& span : examples.answers(i)) {
    for (auto p = std::max<std::int64_t>(span.begin, 1); p < span.end; ++p) {
      targets[static_cast<std::size_t>(p - 1)] = tokens[static_cast<std::size_t>(p)];
    }
  }
  return targets;
}

Batch make_batch(const Examples& examples, std::int64_t first, std::int64_t count,
                 std::int64_t padded_length, const BatchOptions& options, bool pinned) {
  Batch batch;
  for (std::int64_t i = first; i < first + count; ++i) batch.lengths.push_back(examples.length(i));
  batch.effective_tokens =
      std::accumulate(batch.lengths.begin(), batch.lengths.end(), std::int64_t{0});
  batch.computed_tokens =
      options.packed ? packed_tokens(batch.effective_tokens, options) : count * padded_length;
  if (batch.computed_tokens == 0) return batch.lengths.clear(), batch;
  const std::vector<std::int64_t> shape = options.packed
                                              ? std::vector<std::int64_t>{1, batch.computed_tokens}
                                              : std::vector<std::int64_t>{count, padded_length};
  batch.tokens = host_tensor(shape, 0, pinned);
  batch.targets = host_tensor(shape, kIgnored, pinned);
  if (options.packed) batch.positions = host_tensor({batch.computed_tokens}, 0, pinned);
  if (options.packed) add_padding(batch, options);
  if (options.packed) batch.bounds = bounds_of(batch.lengths, pinned);
  std::int64_t place = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto targets = targets_of(examples, i, options.answers_only);
    put(batch.tokens, place, examples.example(i));
    put(batch.targets, place, targets);
    if (options.packed) {
      auto* positions = batch.positions.mutable_data_ptr<std::int64_t>() + place;
      std::iota(positions, positions + examples.length(i), std::int64_t{0});
    }
    batch.labels += static_cast<std::int64_t>(targets.size()) -
                    std::count(targets.begin(), targets.end(), kIgnored);
    place += options.packed ? examples.length(i) : padded_length;
  }
  return batch;
}

BatchPlan::BatchPlan(const Examples& examples, BatchOptions options)
    : examples_(examples), options_(std::move(options)) {
  if (examples.count() == 0) fail("there are no training examples; give some");
  for (std::int64_t i = 0; i < examples.count(); ++i) {
    const auto targets = targets_of(examples, i, options_.answers_only);
    labels_.push_back(static_cast<std::int64_t>(targets.size()) -
                      std::count(targets.begin(), targets.end(), kIgnored));
    if (labels_.back() == 0) ++without_labels_;
  }
  if (without_labels_ == examples.count()) {
    fail("none of the {} training examples has a label{}", examples.count(),
         options_.answers_only ? " (--loss-on answer counts answers alone)" : "");
  }
}

std::int64_t BatchPlan::steps_per_pass() const {
  return (examples_.count() + per_step() - 1) / per_step();
}

BatchPlan::Range BatchPlan::step_examples(std::int64_t step) const {
  const std::int64_t first = step % steps_per_pass() * per_step();
  return {first, std::min(per_step(), examples_.count() - first)};
}

BatchPlan::Range BatchPlan::micro_examples(std::int64_t step, std::int64_t micro_step) const {
  const Range all = step_examples(step);
  const std::int64_t place = (micro_step * options_.ranks + options_.rank) * options_.micro_batch;
  const std::int64_t count = std::clamp<std::int64_t>(all.count - place, 0, options_.micro_batch);
  return {all.first + std::min(place, all.count), count};
}

std::int64_t BatchPlan::step_labels(std::int64_t step) const {
  const Range all = step_examples(step);
  const auto begin = labels_.begin() + all.first;
  return std::accumulate(begin, begin + all.count, std::int64_t{0});
}

std::int64_t BatchPlan::padded_length(Range range) const {
  std::int64_t longest = 0;
  for (std::int64_t i = range.first; i < range.first + range.count; ++i) {
    longest = std::max(longest, examples_.length(i));
  }
  for (const std::int64_t bucket : options_.length_buckets) {
    if (bucket >= longest) return longest == 0 ? 0 : bucket;
  }
  return longest;  // longer than every bucket: as it is
}

Batch BatchPlan::batch(std::int64_t step, std::int64_t micro_step, bool pinned) const {
  const Range range = micro_examples(step, micro_step);
  return make_batch(examples_, range.first, range.count, padded_length(range), options_, pinned);
}

template <class Get>
std::int64_t BatchPlan::rank_sum(std::int64_t step, Get get) const {
  std::int64_t sum = 0;
  for (std::int64_t m = 0; m < options_.accumulate; ++m) sum += get(micro_examples(step, m));
  return sum;
}

std::int64_t BatchPlan::own_tokens(Range range) const {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < range.count; ++i) tokens += examples_.length(range.first + i);
  return tokens;
}

std::int64_t BatchPlan::batch_tokens(Range range) const {
  return options_.packed ? packed_tokens(own_tokens(range), options_)
                         : range.count * padded_length(range);
}

std::int64_t BatchPlan::effective_tokens(std::int64_t step) const {
  return rank_sum(step, [&](Range range) { return own_tokens(range); });
}

std::int64_t BatchPlan::computed_tokens(std::int64_t step) const {
  return rank_sum(step, [&](Range range) { return batch_tokens(range); });
}

std::int64_t BatchPlan::largest_micro_batch(std::int64_t steps) const {
  std::int64_t most = 0;
  for (std::int64_t step = 0; step < std::min(steps, steps_per_pass()); ++step) {
    for (std::int64_t m = 0; m < options_.accumulate; ++m) {
      most = std::max(most, batch_tokens(micro_examples(step, m)));
    }
  }
  return most;
}

std::int64_t BatchPlan::rank_labels(std::int64_t step) const {
  return rank_sum(step, [&](Range range) {
    const auto begin = labels_.begin() + range.first;
    return std::accumulate(begin, begin + range.count, std::int64_t{0});
  });
}

}  // namespace trainsuite
