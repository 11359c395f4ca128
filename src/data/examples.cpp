#include "data/examples.h"

#include <algorithm>

namespace trainsuite {

std::span<const std::int32_t> Examples::example(std::int64_t i) const {
  return std::span(ids).subspan(static_cast<std::size_t>(offsets[static_cast<std::size_t>(i)]),
                                static_cast<std::size_t>(length(i)));
}

std::span<const Span> Examples::answers(std::int64_t i) const {
  const auto first = span_offsets[static_cast<std::size_t>(i)];
  const auto last = span_offsets[static_cast<std::size_t>(i) + 1];
  return std::span(spans).subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(last - first));
}

void Examples::add(std::span<const std::int32_t> tokens, std::span<const Span> answers) {
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  spans.insert(spans.end(), answers.begin(), answers.end());
  offsets.push_back(static_cast<std::int64_t>(ids.size()));
  span_offsets.push_back(static_cast<std::int64_t>(spans.size()));
}

Examples Examples::first(std::int64_t most) const {
  Examples part;
  for (std::int64_t i = 0; i < std::min(most, count()); ++i) part.add(example(i), answers(i));
  return part;
}

}  // namespace trainsuite
