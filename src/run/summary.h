#pragma once
// The summary at the end of a run, from records alone.
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

struct SummaryFacts {
  bool cuda = false;                // false: a dry run
  std::vector<RankIdentity> ranks;  // of the run; tells how many GPUs a row used
  std::string output_path;
};

/// The table with its notes; the last line is the output's path.
/// Reads settings `size`, `recipe`, `ranks`, `tokens_per_step` and results `flops_per_token`,
/// `flops_per_token_uncausal`, `peak_flops` (of one GPU), `peak_allocated_bytes`,
/// `peak_reserved_bytes`. What is unknown is printed as "-".
std::string summary_text(const std::vector<CaseRecord>& records, const SummaryFacts& facts);

/// The same figures as one line of JSON for --json; what is unknown is left out.
std::string summary_json(const std::vector<CaseRecord>& records, const SummaryFacts& facts);

}  // namespace trainsuite
