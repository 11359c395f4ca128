#pragma once
// The summary over repeats: one line a case, from records alone.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "result/repeats.h"
#include "run/summary.h"

namespace trainsuite {

/// Figures of one case over its repeats; what no repeat knows, or any ok repeat cannot give
/// a positive value of, is absent.
struct CaseRepeats {
  std::string suite, name;
  std::size_t ok = 0, all = 0;
  std::optional<Repeats> tokens_per_second, step_seconds, over_own, over_1gpu, mfu;
  std::string own_base;
};

/// One entry a case, in order of first appearance. Ratios are formed within a repeat, so that drift
/// between rounds cancels, and then summarized.
std::vector<CaseRepeats> case_repeats(const std::vector<CaseRecord>& records,
                                      const SummaryFacts& facts);

/// The table with its rule in words; "single run" in a sentence where no case has repeats; empty
/// without rows that are ok.
std::string repeats_text(const std::vector<CaseRecord>& records, const SummaryFacts& facts);

/// An entry a case with `runs`, and for each known figure `median`, `low`, `high`, `method`.
nlohmann::json repeats_json(const std::vector<CaseRecord>& records, const SummaryFacts& facts);

}  // namespace trainsuite
