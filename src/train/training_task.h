#pragma once
// What a case trains, as run_training_case drives it.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "core/setting.h"
#include "device/device.h"
#include "device/step_clock.h"
#include "run/case.h"
#include "train/trainer.h"

namespace trainsuite {

/// This rank's tokens of a step: as computed, and without padding.
struct StepTokens {
  double computed = 0, effective = 0;
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  /// Hashes of weights and tokens, bytes by dtype, numbers of parameters. Waits for the device.
  virtual Settings facts() = 0;
  /// Before and after the steps: what is measured outside them (held-out loss). Collective.
  virtual Settings before_steps() { return {}; }
  virtual Settings after_steps() { return {}; }

  /// Optimizer step `index` on this rank's micro-batches; adds its mean loss to `loss` (0-d fp32).
  /// Enqueues only: nothing in here waits for the device.
  virtual void step(std::int64_t index, StepClock& clock, at::Tensor loss) = 0;
  /// The same operations on next to no data, to time their launching.
  virtual void small_step(std::int64_t index, StepClock& clock, at::Tensor loss) = 0;
  /// False where small_step has no meaning for this task.
  virtual bool has_small_step() const { return true; }
  /// From now on compiled blocks take the place of the model's own; null: its own again. They must
  /// outlive the steps.
  virtual void use_parts(const CompiledParts*) {}
  /// From the next step on steps are captured in a CUDA graph once and replayed.
  virtual void use_graph(bool) {}
  virtual StepTokens tokens(std::int64_t index) const = 0;
  /// Whether a step of this rank has labels: where it has none, its loss is NaN and no failure.
  virtual bool has_loss(std::int64_t) const { return true; }
  virtual std::int64_t weights_hash() = 0;
};

using MakeTask = std::function<std::unique_ptr<TrainingTask>(const Case&, const DeviceInfo&,
                                                             Placement, Communicator*)>;

/// The model of a ddp or compile case, on random tokens.
std::unique_ptr<TrainingTask> make_model_task(const Case& work, const DeviceInfo& device,
                                              Placement place, Communicator* communicator);

}  // namespace trainsuite
