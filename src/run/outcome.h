#pragma once
// How a case ended on one rank, as it travels to rank 0.
#include <string>

#include "result/record.h"

namespace trainsuite {

struct Outcome {
  std::string status = "ok";  // ok|oom|failed|timeout|peer|stopped
  std::string reason;
  RankRecord record;       // meaningful when ok
  std::string phase = {};  // where it failed
  std::int64_t step = -1;  // -1: outside the loop
  std::string lost = {};   // why this process cannot run another case
};

/// Binary text (CBOR); NaN and infinities survive.
std::string pack(const Outcome& outcome);
Outcome unpack(const std::string& bytes);

}  // namespace trainsuite
