#pragma once
// What measuring costs: the same cases with instrumentation and telemetry on and off, in turn.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "result/record.h"
#include "result/repeats.h"
#include "run/case.h"

namespace trainsuite {

/// Each case followed by its twin `<recipe>-bare`, which is timed only as a whole loop.
std::vector<Case> self_check_cases(const std::vector<Case>& cases);

/// Repeats that --self-check runs where --repeats is not given.
inline constexpr std::int64_t self_check_repeats = 5;

/// The cost for one case.
struct SelfCheck {
  std::string name;
  Repeats ratio;  // loop time with / without, formed within a round
  double share() const { return ratio.median - 1; }
};
/// Of every pair of rows that are ok.
std::vector<SelfCheck> self_checks(const std::vector<CaseRecord>& records);

/// A line a case, with its interval; empty without pairs.
std::string self_check_text(const std::vector<CaseRecord>& records);
/// An entry a case: case, share, low, high, method.
nlohmann::json self_check_json(const std::vector<CaseRecord>& records);

}  // namespace trainsuite
