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

/// The outcome of a rank whose device is `lost` (why; empty: it is fine). That is then the reason
/// of a failure, and what failed is where it was seen: work on a device ends after the call that
/// launched it, and any later call may be the one that hears of its failure.
Outcome with_device(Outcome outcome, const std::string& lost);

/// Binary text (CBOR); NaN and infinities survive.
std::string pack(const Outcome& outcome);
Outcome unpack(const std::string& bytes);

}  // namespace trainsuite
