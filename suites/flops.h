#pragma once
// A row's operations, the peak that its MFU is of, and whether it stays below that.
#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

class Session;

/// Adds flops_per_token, flops_per_token_uncausal, peak_flops, peak_flops_source and the check
/// below_peak to a row that is ok, as far as they are known.
void add_flops(Session& session, const Case& work, CaseRecord& row);

}  // namespace trainsuite
