#pragma once
// A suite: a name, a table of cases and how one runs. main.cpp lists them.
#include <functional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "run/case.h"
#include "run/runner.h"

namespace trainsuite {

class Session;

struct Suite {
  std::string name;
  /// Every case, all sizes, in plan order, with the options applied.
  std::function<std::vector<Case>(const Options&, bool cuda, int ranks)> cases;
  /// Sizes that run where --size is not given.
  std::function<std::vector<std::string>(const Options&, bool cuda)> default_sizes;
  std::function<Workload(Session&, const Options&)> workload;
  /// What a step takes, of a case whose kernels are resolved; null where a suite does not know.
  std::function<StepAccount(const Case&)> account{};
  /// The suite's own table at the end of a run; null: the summary of training.
  std::function<std::string(const std::vector<CaseRecord>&)> table{};
};

Suite compile_suite();
Suite ddp_suite();
Suite finetune_suite();
Suite ceilings_suite();

}  // namespace trainsuite
