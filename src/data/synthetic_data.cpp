#include <ATen/ATen.h>

#include <iterator>

#include "data/examples.h"
#include "model/counter_hash.h"

namespace trainsuite {
namespace {

// The counter hash's "steps" that no training step uses.
constexpr std::int64_t kLengthStream = std::int64_t{1} << 40;
constexpr std::int64_t kTokenStream = kLengthStream + 1;
constexpr std::int64_t kUniform = 1 << 16;

/// Lengths at equally spaced quantiles, linear between them; their mean is 188.
constexpr std::int64_t kQuantiles[] = {34,  62,  74,  85,  97,  111, 127, 144, 162,
                                       183, 206, 230, 257, 287, 324, 379, 512};
constexpr auto kIntervals = static_cast<std::int64_t>(std::size(kQuantiles)) - 1;

std::int64_t length_of(std::int64_t uniform) {
  const std::int64_t scaled = uniform * kIntervals;
  const std::int64_t interval = scaled / kUniform, part = scaled % kUniform;
  const std::int64_t low = kQuantiles[interval], high = kQuantiles[interval + 1];
  return low + (high - low) * part / kUniform;
}

/// Examples [first, first + count) of the one endless sequence.
Examples examples_from(std::int64_t seed, std::int64_t first, std::int64_t count,
                       std::int64_t vocabulary) {
  Examples examples;
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::int64_t length = synthetic_length(seed, i);
    const at::Tensor tokens =
        random_tokens(seed, kTokenStream, i, 1, length, vocabulary, at::kCPU).to(at::kInt);
    const auto* ids = tokens.const_data_ptr<std::int32_t>();
    const Span answer{length / 3, length};
    examples.add({ids, ids + length}, {&answer, 1});
  }
  return examples;
}

}  // namespace

std::int64_t synthetic_length(std::int64_t seed, std::int64_t index) {
  return length_of(
      random_tokens(seed, kLengthStream, index, 1, 1, kUniform, at::kCPU).item<std::int64_t>());
}

TrainingData synthetic_data(std::int64_t seed, std::int64_t train, std::int64_t held_out,
                            std::int64_t vocabulary) {
  return {"synthetic", vocabulary, examples_from(seed, 0, train, vocabulary),
          examples_from(seed, train, held_out, vocabulary)};
}

}  // namespace trainsuite
