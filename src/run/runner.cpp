#include "run/runner.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "result/telemetry.h"
#include "run/outcome.h"
#include "run/plan.h"
#include "run/progress.h"

namespace trainsuite {
namespace {

constexpr double patience_seconds = 10;  // for the others, beyond a case's limit

/// Runs the case on this rank; a failure becomes an outcome and a notice to the other ranks.
Outcome run_here(World& world, const Case& work, const Workload& workload) {
  Outcome outcome;
  try {
    if (!work.one_rank || world.is_root()) outcome.record = workload.run(work);
    world.extend_case(patience_seconds);
    world.agree(true);  // a rank that failed does not come: its notice does
    return outcome;
  } catch (const PeerFailed& error) {
    return {"peer", error.what(), {}};
  } catch (const OutOfMemory& error) {
    outcome = {"oom", error.what(), {}};
  } catch (const Timeout& error) {
    outcome = {"timeout", error.what(), {}};
  } catch (const std::exception& error) {
    outcome = {"failed", error.what(), {}};
  }
  world.report_failure(outcome.reason);
  return outcome;
}

/// The first failure that is a rank's own decides the row; "peer" ranks only followed it.
void set_status(CaseRecord& row, const std::vector<Outcome>& outcomes) {
  row.status = "ok";
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& outcome = outcomes[rank];
    if (outcome.status == "ok") continue;
    if (row.status != "ok" && row.status != "peer") continue;
    row.status = outcome.status;
    row.reason = fmt::format("rank {}: {}", rank, outcome.reason);
  }
  if (row.status == "peer") row.status = "failed";
}

template <class T>
std::vector<T> values_of(const std::vector<RankRecord>& ranks, const std::string& name) {
  std::vector<T> values;
  for (const auto& rank : ranks) {
    for (const auto& fact : rank.facts) {
      if (fact.name == name && std::holds_alternative<T>(fact.value)) {
        values.push_back(std::get<T>(fact.value));
      }
    }
  }
  return values;
}

/// A row's scalar: the slowest or largest rank's; hashes, which are no quantities, are rank 0's.
void add_result(CaseRecord& row, const Setting& fact) {
  if (fact.name.starts_with("telemetry_")) return;  // of each rank's own clock
  if (std::holds_alternative<double>(fact.value)) {
    const auto values = values_of<double>(row.ranks, fact.name);
    row.results.push_back({fact.name, *std::max_element(values.begin(), values.end())});
  } else if (std::holds_alternative<std::int64_t>(fact.value) && !fact.name.ends_with("_hash")) {
    const auto values = values_of<std::int64_t>(row.ranks, fact.name);
    row.results.push_back({fact.name, *std::max_element(values.begin(), values.end())});
  } else {
    row.results.push_back(fact);
  }
}

}  // namespace

CaseRecord assemble(const Case& work, std::int64_t repeat, std::vector<RankRecord> ranks) {
  CaseRecord row{.suite = work.suite,
                 .name = work.name(),
                 .repeat = repeat,
                 .status = "ok",
                 .reason = "",
                 .settings = case_settings(work),
                 .results = {},
                 .checks = {},
                 .warmup = {},
                 .ranks = std::move(ranks)};
  for (std::int64_t i = 0; i < work.warmup + work.steps; ++i) {
    row.warmup.push_back(i < work.warmup ? 1 : 0);
  }
  if (row.ranks.empty()) return row;
  for (const auto& fact : row.ranks.front().facts) add_result(row, fact);
  add_telemetry_results(row);
  const auto hashes = values_of<std::int64_t>(row.ranks, "final_weights_hash");
  if (work.communicates && !hashes.empty()) {
    const bool equal = std::equal(hashes.begin() + 1, hashes.end(), hashes.begin());
    row.checks.push_back({"replicas_equal", equal});
    if (!equal) {
      row.status = "failed";
      row.reason = "the replicas' weights differ after the last step";
    }
  }
  return row;
}

namespace {

/// Whether all intervals are as narrow as asked for: rank 0 decides, after a whole round.
bool enough_rounds(World& world, const std::vector<CaseRecord>& rows, const OrderOptions& order) {
  if (!order.until_percent) return false;
  const bool narrow = world.is_root() && narrow_enough(rows, *order.until_percent);
  return world.broadcast(narrow ? "stop" : "go on") == "stop";
}

/// Every rank's outcome of a case, on rank 0. After a failure on any rank the ranks meet again on
/// fresh communicators first.
std::vector<Outcome> settle(World& world, const Workload& workload, const Outcome& mine) {
  if (mine.status != "ok") {
    workload.recover();
    world.clear_failures();
  }
  std::vector<Outcome> outcomes;
  for (const auto& bytes : world.gather(pack(mine))) outcomes.push_back(unpack(bytes));
  return outcomes;
}

CaseRecord make_row(const Case& work, std::int64_t repeat, std::vector<Outcome> outcomes) {
  const bool all_ok = std::all_of(outcomes.begin(), outcomes.end(),
                                  [](const Outcome& one) { return one.status == "ok"; });
  std::vector<RankRecord> records;
  if (all_ok) {
    for (auto& outcome : outcomes) {
      if (!outcome.record.series.empty()) records.push_back(std::move(outcome.record));
    }
  }
  auto row = assemble(work, repeat, std::move(records));
  if (!all_ok) set_status(row, outcomes);
  return row;
}

}  // namespace

std::vector<CaseRecord> run_plan(World& world, const std::vector<Case>& cases,
                                 const Workload& workload, const RunnerOptions& options,
                                 ResultFile* file) {
  const auto order = turns(cases.size(), options.order);
  std::vector<Case> planned;
  for (const Turn& turn : order) {
    planned.push_back(cases[turn.case_index]);
    if (planned.back().vary_seed) planned.back().seed += turn.repeat;
  }
  std::optional<Progress> progress;
  if (world.is_root() && !options.quiet) progress.emplace(Progress::on_stdout(planned));
  std::vector<CaseRecord> rows;
  const auto finish = [&](CaseRecord row, const Case& work) {
    row.results.push_back({"turn", static_cast<std::int64_t>(rows.size())});
    row.settings = merged_settings(options.settings, row.settings);
    workload.describe(work, row);
    file->append(row);
    if (progress) progress->end_case(row);
    rows.push_back(std::move(row));
  };
  for (size_t i = 0; i < planned.size(); ++i) {
    const auto& work = planned[i];
    const auto repeat = order[i].repeat;
    if (progress) {
      progress->begin_case();
      progress->phase("training");
    }
    if (!work.skip.empty()) {
      auto row = assemble(work, repeat, {});
      row.status = "skipped";
      row.reason = work.skip;
      if (world.is_root()) finish(std::move(row), work);
      continue;
    }
    world.begin_case(options.case_seconds);
    const auto mine = run_here(world, work, workload);
    try {
      auto outcomes = settle(world, workload, mine);
      if (world.is_root()) finish(make_row(work, repeat, std::move(outcomes)), work);
    } catch (const Error& error) {  // a rank did not come: the row is kept, the job ends
      const auto reason =
          mine.reason.empty() ? std::string(error.what()) : mine.reason + "; then " + error.what();
      if (world.is_root()) finish(make_row(work, repeat, {{"timeout", reason, {}}}), work);
      if (world.is_root() && options.interrupted) options.interrupted(rows);
      throw;
    }
    if ((i + 1) % cases.size() == 0 && enough_rounds(world, rows, options.order)) break;
  }
  sort_as_planned(rows, cases);
  return rows;
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
