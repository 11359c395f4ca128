#pragma once
// How a case that trains one model runs, and what its row says beside the measurements.
#include <functional>

#include "cli/options.h"
#include "run/runner.h"

namespace trainsuite {

class Session;

/// What FLOPs a token are counted from. Matrix parameters: head included, input embedding not.
struct ModelSize {
  double matmul_parameters, layers, width;
};

Workload training_workload(Session& session, const Options& options,
                           const std::function<ModelSize(const Case&)>& size);

}  // namespace trainsuite
