#pragma once
// The figures of one summary row, shared by the table and its JSON form.
#include <optional>

#include "run/summary.h"

namespace trainsuite {

struct RowFigures {
  std::optional<double> tokens_per_second, tokens_per_second_p10, tokens_per_second_p90;
  std::optional<double> step_seconds, exposed_sync_seconds;  // medians
  bool of_loop = false;  // single steps were not timed: rate and time are means of the loop
  std::optional<double> peak_allocated_bytes, peak_reserved_bytes;
  std::optional<double> mfu, mfu_uncausal;  // fractions of the listed peak
};

/// Rates, times and peaks of a row; all absent unless its status is ok.
RowFigures row_figures(const CaseRecord& record, const SummaryFacts& facts);

}  // namespace trainsuite
