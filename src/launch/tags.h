#pragma once
// Tags of World's own point-to-point messages.

namespace trainsuite {

enum class Tag { barrier, failure, clear, leave };

constexpr int tag_of(Tag tag) { return static_cast<int>(tag); }

}  // namespace trainsuite
