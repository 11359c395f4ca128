#include "run/runner.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "run/outcome.h"
#include "run/plan.h"
#include "run/progress.h"

namespace trainsuite {
namespace {

constexpr double patience_seconds = 10;  // for the others, beyond a case's limit

Outcome failure(World& world, const std::string& status, const std::string& reason) {
  const auto activity = world.activity();
  return {status, reason, {}, activity.phase, activity.step, {}};
}

/// An error that another rank's failure brought about is that rank's.
Outcome failure_or_consequence(World& world, const std::string& reason) {
  try {
    world.check_peers();
  } catch (const PeerFailed& error) {
    return failure(world, "peer", error.what());
  } catch (const Timeout& error) {
    return failure(world, "timeout", fmt::format("{}: {}", error.what(), reason));
  }
  return failure(world, "failed", reason);
}

/// Runs the case on this rank; a failure becomes an outcome and a notice to the other ranks.
Outcome run_here(World& world, const Case& work, const Workload& workload) {
  Outcome outcome;
  try {
    try {
      if (!work.one_rank || world.is_root()) outcome.record = workload.run(work);
    } catch (const Stopped& stopped) {
      outcome = failure(world, "stopped", stopped.what());
    }
    world.enter(waiting_phase);
    world.extend_case(patience_seconds);
    world.agree(true);  // a rank that failed does not come: its notice does
    return outcome;
  } catch (const PeerFailed& error) {
    return failure(world, "peer", error.what());
  } catch (const OutOfMemory& error) {
    outcome = failure(world, "oom", error.what());
  } catch (const Timeout& error) {
    outcome = failure(world, "timeout", error.what());
  } catch (const std::exception& error) {
    outcome = failure_or_consequence(world, error.what());
  }
  if (outcome.status != "peer") world.report_failure(outcome.reason);
  return outcome;
}

/// A case, once.
struct PlannedCase {
  Case work;
  std::int64_t repeat = 0;
};

std::optional<PlannedCase> planned_case(const std::vector<Case>& cases, const Turn& turn,
                                        const EarlierCases& earlier) {
  PlannedCase planned{cases[turn.case_index], turn.repeat};
  const auto number = repeat_to_run(earlier, planned.work.name(), turn.repeat);
  if (!number) return std::nullopt;
  planned.repeat = *number;
  if (planned.work.vary_seed) planned.work.seed += *number;
  return planned;
}

/// Whether all intervals are as narrow as asked for: rank 0 decides, after a whole round.
bool enough_rounds(World& world, const std::vector<CaseRecord>& rows, const OrderOptions& order) {
  if (!order.until_percent) return false;
  const bool narrow = world.is_root() && narrow_enough(rows, *order.until_percent);
  return world.broadcast(narrow ? "stop" : "go on") == "stop";
}

/// Every rank's outcome of a case, on rank 0. After a failure on any rank the ranks meet again on
/// fresh communicators first.
std::vector<Outcome> settle(World& world, const Workload& workload, Outcome mine) {
  world.enter(leaving_phase);
  if (mine.status != "ok" && mine.status != "stopped") {
    mine = with_device(std::move(mine), workload.recover());
    world.clear_failures();
  }
  std::vector<Outcome> outcomes;
  for (const auto& bytes : world.gather(pack(mine))) outcomes.push_back(unpack(bytes));
  return outcomes;
}

/// One run of a plan, on one rank.
class PlanRun {
 public:
  PlanRun(World& world, const std::vector<std::optional<PlannedCase>>& planned,
          const Workload& workload, const RunnerOptions& options, ResultFile* file)
      : world_(world),
        workload_(workload),
        options_(options),
        file_(file),
        watchdog_(world, options.watchdog) {
    std::vector<Case> cases;
    for (const auto& one : planned) {
      if (one) cases.push_back(one->work);
    }
    if (world.is_root() && !options.quiet) progress_.emplace(Progress::on_stdout(cases));
  }

  /// False where rank 0 knows of a stop.
  bool goes_on() {
    const bool go = world_.broadcast(watchdog_.stop() ? "stop" : "go") == "go";
    cut_ = cut_ || !go;
    return go;
  }

  void run(const PlannedCase& turn) {
    if (progress_) {
      progress_->begin_case();
      progress_->phase("training");
    }
    if (!turn.work.skip.empty()) return skip(turn);
    begin_ = std::chrono::steady_clock::now();
    world_.enter("set-up");
    world_.begin_case(options_.case_seconds, !turn.work.one_rank || world_.is_root());
    watchdog_.begin_case([this, turn](const std::string& late) { return give_up(turn, late); });
    const auto mine = run_here(world_, turn.work, workload_);
    std::vector<Outcome> outcomes;
    try {
      outcomes = settle(world_, workload_, mine);
    } catch (const Error& error) {  // a rank did not come: the row is kept, the job ends
      watchdog_.end_case();
      if (world_.is_root()) end_early(turn, join_texts(mine.reason, error.what()));
      throw;
    }
    watchdog_.end_case();
    world_.begin_case();  // no case: writing the row has no limit
    world_.enter("between cases");
    if (!world_.is_root()) return;
    auto row = make_row(turn.work, turn.repeat, outcomes, watchdog_.stop());
    cut_ = cut_ || find_value(row.results, "stopped") != nullptr;
    finish(std::move(row), turn.work);
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      if (!outcomes[rank].lost.empty()) fail_lost(turn, rank, outcomes[rank].lost);
    }
  }

  const std::vector<CaseRecord>& rows() const { return rows_; }
  PlanResult result() { return {std::move(rows_), cut_ ? watchdog_.stop() : std::nullopt}; }

 private:
  static std::string join_texts(const std::string& first, const std::string& second) {
    return first.empty() ? second : first + "; then " + second;
  }

  void skip(const PlannedCase& turn) {
    if (!world_.is_root()) return;
    auto row = assemble(turn.work, turn.repeat, {});
    row.status = "skipped";
    row.reason = turn.work.skip;
    finish(std::move(row), turn.work);
  }

  void finish(CaseRecord row, const Case& work) {
    row.results.push_back({"turn", static_cast<std::int64_t>(rows_.size())});
    row.settings = merged_settings(options_.settings, row.settings);
    workload_.describe(work, row);
    file_->append(row);
    if (progress_) progress_->end_case(row);
    rows_.push_back(std::move(row));
  }

  void end_early(const PlannedCase& turn, const std::string& reason) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin_;
    const bool late = options_.case_seconds > 0 && taken.count() > options_.case_seconds;
    auto row =
        make_row(turn.work, turn.repeat, {{late ? "timeout" : "failed", reason, {}}}, std::nullopt);
    row.reason = reason;
    row.results.clear();
    finish(std::move(row), turn.work);
    if (options_.interrupted) options_.interrupted(rows_);
  }

  /// In the watchdog's thread.
  std::string give_up(const PlannedCase& turn, const std::string& late) {
    std::string why;
    try {
      world_.check_peers();
    } catch (const Error& error) {
      why = error.what();
    }
    end_early(turn, join_texts(why, late));
    return fmt::format("{}: {}; {}", turn.work.name(), late, options_.how_to_go_on);
  }

  [[noreturn]] void fail_lost(const PlannedCase& turn, size_t rank, const std::string& reason) {
    if (options_.interrupted) options_.interrupted(rows_);
    fail("{}: rank {} cannot go on: {}; {}", turn.work.name(), rank, reason, options_.how_to_go_on);
  }

  World& world_;
  const Workload& workload_;
  const RunnerOptions& options_;
  ResultFile* file_;
  std::optional<Progress> progress_;
  std::vector<CaseRecord> rows_;
  bool cut_ = false;  // something of the plan was left out
  std::chrono::steady_clock::time_point begin_{};
  Watchdog watchdog_;  // last: its thread uses the others
};

}  // namespace

PlanResult run_plan(World& world, const std::vector<Case>& cases, const Workload& workload,
                    const RunnerOptions& options, ResultFile* file) {
  const auto order = turns(cases.size(), options.order);
  std::vector<std::optional<PlannedCase>> planned;  // empty: the file has it
  for (const Turn& turn : order) planned.push_back(planned_case(cases, turn, options.earlier));
  PlanRun run(world, planned, workload, options, file);
  for (size_t i = 0; i < planned.size(); ++i) {
    if (planned[i]) {
      if (!run.goes_on()) break;
      run.run(*planned[i]);
    }
    if ((i + 1) % cases.size() == 0 && enough_rounds(world, run.rows(), options.order)) break;
  }
  auto result = run.result();
  sort_as_planned(result.rows, cases);
  return result;
}

int exit_status(const std::vector<CaseRecord>& rows) {
  return std::all_of(rows.begin(), rows.end(),
                     [](const CaseRecord& row) {
                       return row.status == "ok" || row.status == "oom" || row.status == "skipped";
                     })
             ? 0
             : 1;
}

}  // namespace trainsuite
