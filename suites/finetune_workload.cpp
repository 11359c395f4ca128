// How a case of the finetune suite runs, and what its rows say beside the measurements.
#include <fmt/format.h>

#include "compiling.h"
#include "finetune.h"
#include "flops.h"
#include "model/decoder.h"
#include "run/plan.h"
#include "session.h"
#include "suite.h"
#include "train/finetune_task.h"
#include "train/training_case.h"

namespace trainsuite {
namespace {

/// The training's wall time, without load, compilation and evaluation: all of its steps.
void add_train_seconds(CaseRecord& row) {
  const Value* first = find_value(row.results, "first_step_seconds_warm");
  if (!first) first = find_value(row.results, "first_step_seconds");
  const Value* others = find_value(row.results, "loop_seconds");
  double seconds = 0;
  for (const Value* part : {first, others}) seconds += part ? std::get<double>(*part) : 0;
  row.results.push_back({"train_seconds", seconds});
}

void describe(Session& session, const Case& work, CaseRecord& row) {
  const auto kernels = fmt::format("attention={} loss={} block={}", work.attention,
                                   work.loss_kernel, work.block_kernel);
  row.settings = merged_settings(
      row.settings,
      {{"implementation", std::string("trainsuite")},
       {"compile_mode", work.execution},
       {"communicator", work.communicates ? session.comm_kind() : "none"},
       {"kernels", kernels},
       {"dry_run", !session.device().cuda},
       {"ranks_total", std::int64_t{session.world().size()}},
       {"suite", work.suite},
       // Losses of random weights or random tokens compare with no published ones.
       {"held_out_comparable", !work.finetune->model.empty() && !work.finetune->data.empty()}});
  if (const auto bytes = wide_output_bytes(work); bytes > 0) {
    row.settings = merged_settings(row.settings, {{"predicted_wide_output_bytes", bytes}});
  }
  Case one = work;
  if (work.finetune->data.empty()) one.account = finetune_account(work);  // of this repeat's seed
  row.settings = merged_settings(row.settings, account_settings(*one.account));
  if (row.status != "ok") return;
  add_train_seconds(row);
  add_flops(session, one, row);
}

RankRecord run_case(Session& session, const Case& work, bool instrumented,
                    const CompileChoice& choice) {
  const auto connect = [&] { return work.communicates ? &session.communicator() : nullptr; };
  const MakeTask make_task = [](const Case& one, const DeviceInfo& device, Placement place,
                                Communicator* communicator) {
    return make_finetune_task(one, case_model(one), training_data(one),
                              case_weights(one, device.torch_device()), device, place,
                              communicator);
  };
  return run_training_case(work, session.device(), session.world(), connect, make_task,
                           instrumented && work.instrumented,
                           work.instrumented ? session.telemetry() : nullptr, choice);
}

}  // namespace

Suite finetune_suite() {
  return {"finetune", finetune_cases, finetune_default_sizes,
          [](Session& session, const Options& options) {
            Workload workload;
            const bool instrumented = options.instrumentation == "on";
            const auto choice = compile_choice(options);
            workload.run = [&session, instrumented, choice](const Case& work) {
              return run_case(session, work, instrumented, choice);
            };
            workload.recover = [&session] { return session.recover(); };
            workload.describe = [&session](const Case& work, CaseRecord& row) {
              describe(session, work, row);
            };
            return workload;
          },
          finetune_account};
}

}  // namespace trainsuite
