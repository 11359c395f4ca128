#pragma once
// How a case that trains one model runs, and what its row says beside the measurements.
#include "cli/options.h"
#include "run/runner.h"

namespace trainsuite {

class Session;

Workload training_workload(Session& session, const Options& options);

}  // namespace trainsuite
