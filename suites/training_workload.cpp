#include "training_workload.h"

#include <fmt/format.h>

#include "compiling.h"
#include "device/device.h"
#include "result/statistics.h"
#include "run/plan.h"
#include "session.h"
#include "train/training_case.h"

namespace trainsuite {
namespace {

void add_flops(const Case& work, const DeviceInfo& device, const ModelSize& model,
               CaseRecord& row) {
  const auto flops = [&](bool halved) {
    return flops_per_token(model.matmul_parameters, model.layers, model.width,
                           static_cast<double>(work.sequence), halved);
  };
  row.results.push_back({"flops_per_token", flops(true)});
  row.results.push_back({"flops_per_token_uncausal", flops(false)});
  const auto gpu = device.cuda ? find_gpu(device.name) : std::nullopt;
  if (gpu && work.precision == "bf16") {
    row.results.push_back({"peak_flops", gpu->dense_bf16_tflops * 1e12});
  }
}

void describe(Session& session, const Case& work, const ModelSize& size, CaseRecord& row) {
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
  if (row.status == "ok") add_flops(work, session.device(), size, row);
}

}  // namespace

Workload training_workload(Session& session, const Options& options,
                           const std::function<ModelSize(const Case&)>& size) {
  Workload workload;
  const bool instrumented = options.instrumentation == "on";
  const auto choice = compile_choice(options);
  workload.run = [&session, instrumented, choice](const Case& work) {
    const auto connect = [&] { return work.communicates ? &session.communicator() : nullptr; };
    return run_training_case(work, session.device(), session.world(), connect, instrumented,
                             choice);
  };
  workload.recover = [&session] { session.drop_communicator(); };
  workload.describe = [&session, size](const Case& work, CaseRecord& row) {
    describe(session, work, size(work), row);
  };
  return workload;
}

}  // namespace trainsuite
