#pragma once
// Training examples as token ids, one after the other. Knows no tensors and no files.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainsuite {

/// Part of an example that is answer: tokens [begin, end), counted from its first.
struct Span {
  std::int64_t begin, end;
};

/// Example i is ids[offsets[i] .. offsets[i + 1]), its answers are
/// spans[span_offsets[i] .. span_offsets[i + 1]).
struct Examples {
  std::vector<std::int64_t> offsets{0}, span_offsets{0};
  std::vector<Span> spans;
  std::vector<std::int32_t> ids;

  std::int64_t count() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t length(std::int64_t i) const {
    return offsets[static_cast<std::size_t>(i) + 1] - offsets[static_cast<std::size_t>(i)];
  }
  std::span<const std::int32_t> example(std::int64_t i) const;
  std::span<const Span> answers(std::int64_t i) const;
  /// Adds one behind the others.
  void add(std::span<const std::int32_t> tokens, std::span<const Span> answers);
  /// The first `most` of them.
  Examples first(std::int64_t most) const;
};

/// What a run trains and evaluates on.
struct TrainingData {
  std::string source;  // a file, or how it was made
  std::int64_t vocabulary = 0;
  Examples train, held_out;
};

/// Seeded random tokens whose lengths follow the distribution of alpaca-cleaned under Qwen's
/// template: mean 188, at most 512. Example i is the same whatever the counts; the answer is its
/// last two thirds. Ids are below `vocabulary`.
TrainingData synthetic_data(std::int64_t seed, std::int64_t train, std::int64_t held_out,
                            std::int64_t vocabulary);
/// Length of example `index` of that set.
std::int64_t synthetic_length(std::int64_t seed, std::int64_t index);

}  // namespace trainsuite
