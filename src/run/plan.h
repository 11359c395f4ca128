#pragma once
// From a suite's table of cases to the list that will run.
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli/options.h"
#include "core/setting.h"
#include "run/case.h"

namespace trainsuite {

/// The cases that --size and --case select, in the table's order, each once.
/// --execution leaves the rows of its kind, and a glob then need not name it. Rows that run on
/// request alone are selected by it, or by a glob that matches no other ("*-compile").
/// Without --size the sizes are `default_sizes`; a glob that matches none of these but names cases
/// of other sizes whole ("355m-plain", "tiny-*") selects those.
/// Throws UsageError for an unknown size or a glob that matches nothing.
std::vector<Case> select_cases(const std::vector<Case>& all, const Options& options,
                               const std::vector<std::string>& default_sizes);

/// Names, one a line: every case of the suite, or those that --size and --case select.
void print_list(std::ostream& out, const std::vector<Case>& all, const Options& options);

/// What the plan says above its table.
struct PlanFacts {
  bool cuda = false;
  std::string device_name;  // "NVIDIA H200", or the CPU model
  int ranks = 1, hosts = 1;
  std::int64_t repeats = 1;
  std::optional<double> until_percent{};
  std::string communicator;  // "nccl" or "mpi"
  std::string link = "auto";
  std::optional<std::int64_t> free_bytes{};  // of the GPU that has least; absent on a CPU
  bool default_sizes = true;                 // --size was not given
  std::string output_path;                   // empty: nothing will be written
};

/// One line a case: name, what it is, ranks, batch, tokens a step, steps, communicator, memory.
void print_plan(std::ostream& out, const std::vector<Case>& cases, const PlanFacts& facts);

/// The settings of one case under their recorded names, `tokens_per_step` included.
Settings case_settings(const Case& one);

/// `base` with the values of `overrides` replacing those of the same name, new ones appended.
Settings merged_settings(Settings base, const Settings& overrides);

}  // namespace trainsuite
