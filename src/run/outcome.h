#pragma once
// How a case ended on one rank, as it travels to rank 0.
#include <string>

#include "result/record.h"

namespace trainsuite {

struct Outcome {
  std::string status = "ok";  // ok|oom|failed|timeout|peer
  std::string reason;
  RankRecord record;  // meaningful when ok
};

/// Binary text (CBOR); NaN and infinities survive.
std::string pack(const Outcome& outcome);
Outcome unpack(const std::string& bytes);

}  // namespace trainsuite
