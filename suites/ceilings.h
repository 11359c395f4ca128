#pragma once
// The ceilings suite: what this machine can do at most, as a table of cases.
#include <string>
#include <vector>

#include "cli/options.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "launch/world.h"
#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

/// Every case, sizes "full" and "tiny", in plan order. `cuda`: rows that only a GPU can have carry
/// a reason to be skipped elsewhere.
std::vector<Case> ceilings_cases(const Options& options, bool cuda, int ranks);
/// full on GPUs, tiny on a CPU (dry run).
std::vector<std::string> ceilings_default_sizes(const Options& options, bool cuda);

/// Problem sizes of a case: rows of square matrices, or bytes (multiples of 16 x ranks).
std::vector<std::int64_t> problem_sizes(const Case& work);

/// Runs one case on this rank: for each problem size, warm-up and measured repetitions back to
/// back, then the check of the results. Series step_seconds, problem_size and wrong_values over all
/// of them. `communicator` is null where the case does not communicate.
RankRecord run_ceiling(const Case& work, const DeviceInfo& device, World& world,
                       Communicator* communicator);

/// Rates and best rates as a table with its definitions.
std::string ceilings_table(const std::vector<CaseRecord>& records);

}  // namespace trainsuite
