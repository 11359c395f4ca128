#pragma once
// What watchdogs send each other.
#include <cstdint>
#include <string>

#include "launch/watchdog.h"

namespace trainsuite {

/// What travels; meaning of the fields by kind.
struct Watchdog::Message {
  enum class Kind : std::int32_t { sign, stop_wanted, stop, gate, stop_step };
  Kind kind = Kind::sign;
  std::int32_t code = 0;
  std::int64_t epoch = 0, step = 0;
  char text[96] = {};

  void set_text(const std::string& words) { words.copy(text, sizeof text - 1); }
};

/// "training, step 4, for 14 s".
std::string in_words(const Activity& activity);
bool is_leaving(const Activity& activity);

}  // namespace trainsuite
