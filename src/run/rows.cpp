#include "run/rows.h"

#include <algorithm>

#include "core/error.h"
#include "result/telemetry.h"
#include "run/plan.h"

namespace trainsuite {
namespace {

/// The rank whose failure the row tells: the first with one of its own; of ranks that ran into the
/// limit, one that was not waiting for others. None: -1.
int telling_rank(const std::vector<Outcome>& outcomes) {
  int telling = -1;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& outcome = outcomes[rank];
    if (outcome.status == "ok" || outcome.status == "stopped") continue;
    const auto weight = [](const Outcome& one) {
      if (one.status == "peer") return 0;
      return one.status == "timeout" ? (one.phase == waiting_phase ? 1 : 2) : 3;
    };
    if (telling >= 0 && weight(outcome) <= weight(outcomes[static_cast<size_t>(telling)])) continue;
    telling = static_cast<int>(rank);
  }
  return telling;
}

void set_status(CaseRecord& row, const std::vector<Outcome>& outcomes) {
  const int rank = telling_rank(outcomes);
  if (rank < 0) return;
  const auto& outcome = outcomes[static_cast<size_t>(rank)];
  row.status = outcome.status == "peer" ? "failed" : outcome.status;
  const auto step = outcome.step < 0 ? std::string() : fmt::format(", step {}", outcome.step);
  row.reason = fmt::format("rank {} ({}{}): {}", rank, outcome.phase, step, outcome.reason);
  row.results.push_back({"failed_rank", std::int64_t{rank}});
  row.results.push_back({"failed_phase", outcome.phase});
  if (outcome.step >= 0) row.results.push_back({"failed_step", outcome.step});
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

bool any_has(const std::vector<Outcome>& outcomes, const char* status) {
  return std::any_of(outcomes.begin(), outcomes.end(),
                     [&](const Outcome& one) { return one.status == status; });
}

/// A case that was not run to its end because the run was asked to stop; --resume runs it.
void set_stopped(CaseRecord& row, const std::vector<Outcome>& outcomes, const Stop& stop) {
  row.status = stop.time_over ? "timeout" : "skipped";
  row.reason = stop.reason;
  for (const auto& outcome : outcomes) {
    if (outcome.status != "stopped") continue;
    row.reason = fmt::format("{}: {}", stop.reason, outcome.reason);
    break;
  }
  row.results.push_back({"stopped", true});
}

}  // namespace

CaseRecord make_row(const Case& work, std::int64_t repeat, std::vector<Outcome> outcomes,
                    const std::optional<Stop>& stop) {
  const bool all_ok = std::all_of(outcomes.begin(), outcomes.end(),
                                  [](const Outcome& one) { return one.status == "ok"; });
  std::vector<RankRecord> records;
  if (all_ok) {
    for (auto& outcome : outcomes) {
      if (!outcome.record.series.empty()) records.push_back(std::move(outcome.record));
    }
  }
  auto row = assemble(work, repeat, std::move(records));
  if (all_ok) return row;
  // Ranks that did not reach the agreed step in time have only peers' notices to tell.
  const bool stopped = stop && !any_has(outcomes, "failed") && !any_has(outcomes, "oom") &&
                       !any_has(outcomes, "timeout");
  stopped ? set_stopped(row, outcomes, *stop) : set_status(row, outcomes);
  return row;
}

}  // namespace trainsuite
