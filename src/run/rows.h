#pragma once
// A row from what became of a case on every rank.
#include <optional>
#include <vector>

#include "launch/watchdog.h"
#include "result/record.h"
#include "run/case.h"
#include "run/outcome.h"

namespace trainsuite {

/// The phase of a rank that has done its part of a case.
inline constexpr const char* waiting_phase = "waiting for the other ranks";

/// One row from what the ranks that took part measured; the checks that need all of them.
CaseRecord assemble(const Case& work, std::int64_t repeat, std::vector<RankRecord> ranks);

/// One row from every rank's outcome: that of the rank whose failure came first, or, where the run
/// was asked to stop (`stop`) and no rank failed, that of a case which was not run to its end.
CaseRecord make_row(const Case& work, std::int64_t repeat, std::vector<Outcome> outcomes,
                    const std::optional<Stop>& stop);

}  // namespace trainsuite
