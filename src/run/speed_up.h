#pragma once
// Speed-ups of a run's rows on their two bases; pure arithmetic.
#include <optional>
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// Ratios of tokens per second of one row, each with the recipe that is its base. A base that is
/// missing, failed or unmeasured leaves its ratio absent.
struct SpeedUp {
  std::string own_base;              // "1gpu", "1gpu-accumulate4"; empty where there is none
  std::optional<double> over_own;    // own rate / rate of own_base
  std::optional<double> over_1gpu;   // own rate / rate of 1gpu of the same size and repeat
  std::optional<double> efficiency;  // over_1gpu / ranks, rows named `independent` only
};

/// One entry per record, in order. plain and bf16 have the own base 1gpu; accumulateN and both
/// have 1gpu-accumulateN; X-compile and X-graph have that base with the same ending; compile-A and
/// graph-A have eager-A; the 1gpu rows and independent have none.
std::vector<SpeedUp> speed_ups(const std::vector<CaseRecord>& records);

/// The integer or floating-point setting of that name; absent where it is not there.
std::optional<double> find_number(const Settings& settings, const std::string& name);
/// The text of that name; empty where it is not there.
std::string find_text(const Settings& settings, const std::string& name);

}  // namespace trainsuite
