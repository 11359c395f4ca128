#pragma once
// What every suite does about its compiled rows.
#include <string>
#include <vector>

#include "cli/options.h"
#include "run/case.h"
#include "train/case_packages.h"

namespace trainsuite {

class Session;

CompileChoice compile_choice(const Options& options);

/// Says in each graph row that cannot run why not. `communicator`: nccl|mpi.
void skip_graph_rows(std::vector<Case>& cases, bool cuda, const std::string& communicator);

/// Collective: where a case needs packages that are not in the cache, checks that this host can
/// compile and run them. Throws UsageError on all ranks naming what is missing.
void check_compiling(Session& session, const Options& options, const std::vector<Case>& cases);

}  // namespace trainsuite
