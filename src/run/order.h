#pragma once
// In which order the cases of a plan run, and when enough rounds have run.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

/// One run of one case.
struct Turn {
  std::size_t case_index = 0;  // in the plan
  std::int64_t repeat = 0;     // the round it belongs to
  std::int64_t position = 0;   // in the order of the run, from 0
};

struct OrderOptions {
  std::int64_t repeats = 1;  // rounds; with `until_percent` the most rounds
  bool shuffled = true;      // a new order in each round; false: always the plan's
  std::int64_t seed = 1;
  /// Rounds end once the interval over repeats of every case is at most this many percent of its
  /// median away from it.
  std::optional<double> until_percent{};
};

/// From --repeats, --order (auto: shuffled as soon as there is more than one round), --seed and
/// --until (at most --repeats rounds, or 100 where that is 1).
OrderOptions order_options(const Options& options);

/// A permutation of 0..cases-1, the same on every machine for equal arguments (Fisher-Yates over
/// std::mt19937_64, both fixed by their definitions). Rounds of one seed differ in their order.
std::vector<std::size_t> round_order(std::size_t cases, std::int64_t round,
                                     const OrderOptions& options);

/// All turns of `options.repeats` rounds.
std::vector<Turn> turns(std::size_t cases, const OrderOptions& options);

/// Whether every case that can be repeated (ok in all its rows) has an interval within
/// `until_percent`. False before the third repeat, of which the interval needs three.
bool narrow_enough(const std::vector<CaseRecord>& rows, double until_percent);

/// Rows in the plan's order of cases, repeats of a case in turn.
void sort_as_planned(std::vector<CaseRecord>& rows, const std::vector<Case>& plan);

}  // namespace trainsuite
