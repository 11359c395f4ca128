// How a case of the ddp suite runs, and what its rows say beside the measurements.
#include <fmt/format.h>

#include "ddp.h"
#include "device/device.h"
#include "model/gpt2.h"
#include "result/statistics.h"
#include "run/plan.h"
#include "session.h"
#include "suite.h"
#include "train/training_case.h"

namespace trainsuite {
namespace {

/// Matrix parameters, head included, input embeddings excluded: layers x 12 width^2 + V width.
double matmul_parameters(const Gpt2Config& model) {
  const auto width = static_cast<double>(model.width);
  return static_cast<double>(model.layers) * 12 * width * width +
         static_cast<double>(model.vocabulary) * width;
}

void add_flops(const Case& work, const DeviceInfo& device, CaseRecord& row) {
  const auto model = gpt2_config(work.size, work.vocabulary, work.sequence);
  const auto flops = [&](bool halved) {
    return flops_per_token(matmul_parameters(model), static_cast<double>(model.layers),
                           static_cast<double>(model.width), static_cast<double>(work.sequence),
                           halved);
  };
  row.results.push_back({"flops_per_token", flops(true)});
  row.results.push_back({"flops_per_token_uncausal", flops(false)});
  const auto gpu = device.cuda ? find_gpu(device.name) : std::nullopt;
  if (gpu && work.precision == "bf16") {
    row.results.push_back({"peak_flops", gpu->dense_bf16_tflops * 1e12});
  }
}

void describe(Session& session, const Case& work, CaseRecord& row) {
  const auto kernels = fmt::format("attention={} loss={} block={}", work.attention,
                                   work.loss_kernel, work.block_kernel);
  row.settings = merged_settings(
      row.settings, {{"implementation", std::string("trainsuite")},
                     {"compile_mode", std::string("eager")},
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
  if (row.status == "ok") add_flops(work, session.device(), row);
}

}  // namespace

Suite ddp_suite() {
  return {"ddp", ddp_cases, ddp_default_sizes, predicted_peak_bytes,
          [](Session& session, const Options& options) {
            Workload workload;
            const bool instrumented = options.instrumentation == "on";
            workload.run = [&session, instrumented](const Case& work) {
              const auto connect = [&] {
                return work.communicates ? &session.communicator() : nullptr;
              };
              return run_training_case(work, session.device(), session.world(), connect,
                                       make_gpt2_task, instrumented);
            };
            workload.recover = [&session] { session.drop_communicator(); };
            workload.describe = [&session](const Case& work, CaseRecord& row) {
              describe(session, work, row);
            };
            return workload;
          }};
}

}  // namespace trainsuite
