#pragma once
// Drives the plan: every rank runs each case together, rank 0 gathers, writes and prints.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/watchdog.h"
#include "launch/world.h"
#include "result/record.h"
#include "result/result_file.h"
#include "run/case.h"
#include "run/order.h"
#include "run/resume.h"
#include "run/rows.h"

namespace trainsuite {

/// What the runner needs from a suite; it knows neither tensors nor devices.
struct Workload {
  /// Runs a case on this rank. Throws as run_training_case does.
  std::function<RankRecord(const Case&)> run;
  /// After a case that failed on any rank: drops what the failure may have damaged. Returns why
  /// this process cannot run another case; empty where it can.
  std::function<std::string()> recover;
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
  WatchdogOptions watchdog{};
  EarlierCases earlier{};      // what the file has already; the same on all ranks
  std::string how_to_go_on{};  // for the last words of a run that ends early
};

struct PlanResult {
  std::vector<CaseRecord> rows;
  std::optional<Stop> stop;  // why it ended before the plan's end
};

/// Runs `cases` in rounds, one a repeat, and returns the rows in the plan's order, on rank 0 only.
/// Each row gets the result `turn`, its place in the order of the run. Every rank must pass the
/// same cases. `file` is null on other ranks. Throws Error, with every finished row in the file,
/// where a process cannot go on; ends all ranks where one neither comes nor fails.
PlanResult run_plan(World& world, const std::vector<Case>& cases, const Workload& workload,
                    const RunnerOptions& options, ResultFile* file);

/// 0 when every row is ok, oom or skipped, else 1.
int exit_status(const std::vector<CaseRecord>& rows);

}  // namespace trainsuite
