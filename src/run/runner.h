#pragma once
// Drives the plan: every rank runs each case together, rank 0 gathers, writes and prints.
#include <functional>
#include <vector>

#include "launch/world.h"
#include "result/record.h"
#include "result/result_file.h"
#include "run/case.h"
#include "run/order.h"

namespace trainsuite {

/// What the runner needs from a suite; it knows neither tensors nor devices.
struct Workload {
  /// Runs a case on this rank. Throws as run_training_case does.
  std::function<RankRecord(const Case&)> run;
  /// After a case that failed on any rank: drop what the failure may have damaged.
  std::function<void()> recover;
  /// Settings and results of a row that only the suite knows (kernels, FLOPs a token).
  std::function<void(const Case&, CaseRecord&)> describe;
};

struct RunnerOptions {
  OrderOptions order{};     // rounds of the plan, one a repeat
  Settings settings;        // recorded with every row
  double case_seconds = 0;  // limit of a case, 0: none
  /// The job is about to end early: the rows so far, on rank 0.
  std::function<void(const std::vector<CaseRecord>&)> interrupted{};
  bool quiet = false;  // no progress on standard output
};

/// Runs `cases` in rounds, one a repeat, and returns the rows in the plan's order, on rank 0 only.
/// Each row gets the result `turn`, its place in the order of the run.
/// Every rank must pass the same cases. `file` is null on other ranks.
std::vector<CaseRecord> run_plan(World& world, const std::vector<Case>& cases,
                                 const Workload& workload, const RunnerOptions& options,
                                 ResultFile* file);

/// One row from what the ranks that took part measured; the checks that need all of them.
CaseRecord assemble(const Case& work, std::int64_t repeat, std::vector<RankRecord> ranks);

/// 0 when every row is ok, oom or skipped, else 1.
int exit_status(const std::vector<CaseRecord>& rows);

}  // namespace trainsuite
