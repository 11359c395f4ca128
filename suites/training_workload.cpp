#include "training_workload.h"

#include <fmt/format.h>

#include "compiling.h"
#include "flops.h"
#include "run/plan.h"
#include "session.h"
#include "train/training_case.h"

namespace trainsuite {
namespace {

void describe(Session& session, const Case& work, CaseRecord& row) {
  const auto kernels = fmt::format("attention={} loss={} block={}", work.attention,
                                   work.loss_kernel, work.block_kernel);
  row.settings = merged_settings(
      row.settings, {{"implementation", std::string("trainsuite")},
                     {"compile_mode", work.execution},
                     {"communicator", work.communicates ? session.comm_kind() : "none"},
                     {"kernels", kernels},
                     {"dry_run", !session.device().cuda},
                     {"ranks_total", std::int64_t{session.world().size()}},
                     {"suite", work.suite}});
  for (const auto& result : row.results) {
    if (result.name != "parameters_total") continue;
    row.results.push_back({"parameters_trainable", Value(result.value)});
    break;
  }
  if (work.communicates) row.settings = merged_settings(row.settings, session.nccl_choices());
  if (row.status == "ok") add_flops(session, work, row);
}

}  // namespace

Workload training_workload(Session& session, const Options& options) {
  Workload workload;
  const bool instrumented = options.instrumentation == "on";
  const auto choice = compile_choice(options);
  workload.run = [&session, instrumented, choice](const Case& work) {
    const auto connect = [&] { return work.communicates ? &session.communicator() : nullptr; };
    return run_training_case(work, session.device(), session.world(), connect, make_model_task,
                             instrumented && work.instrumented,
                             work.instrumented ? session.telemetry() : nullptr, choice);
  };
  workload.recover = [&session] { return session.recover(); };
  workload.describe = [&session](const Case& work, CaseRecord& row) {
    describe(session, work, row);
  };
  return workload;
}

}  // namespace trainsuite
