#pragma once
// One training step, readable from top to bottom.
#include <memory>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/step_clock.h"
#include "model/gpt2.h"
#include "run/case.h"
#include "train/compiled_parts.h"
#include "train/gradients.h"
#include "train/optimizer.h"

namespace trainsuite {

/// Whose share of the joint data this rank takes. One rank alone: rank 0 of 1.
struct Placement {
  int rank = 0;
  int ranks = 1;
};

class Trainer {
 public:
  /// `communicator` is null where gradients stay on the rank.
  Trainer(const Case& work, const DeviceInfo& device, Placement place, Communicator* communicator);

  struct Shape {
    std::int64_t micro_batch, sequence;
  };
  /// Optimizer step `index` on this rank's micro-batches; adds its mean loss to `loss` (0-d fp32).
  /// Enqueues only: nothing in here waits for the device.
  void step(std::int64_t index, Shape shape, StepClock& clock, at::Tensor loss);

  /// From now on the model's blocks are these; null: its own again. They must outlive the steps.
  void use_parts(const CompiledParts* parts) { parts_ = parts; }

  /// This rank's tokens [micro_batch, sequence + 1] of a micro-batch of a step: the ranks' shares
  /// of one joint micro-batch lie side by side, so N ranks of B see what one rank of N x B sees.
  at::Tensor tokens(std::int64_t index, std::int64_t micro_step, Shape shape) const;

  const WorkingWeights& weights() const { return weights_; }
  const Gradients& gradients() const { return *gradients_; }
  std::int64_t optimizer_bytes() const { return optimizer_.state_bytes(); }
  bool rows_gradient() const { return rows_gradient_; }

 private:
  Case work_;
  Gpt2Config model_;
  c10::Device device_;
  Placement place_;
  int summed_ranks_;    // ranks that the gradient is summed over, 1 without a communicator
  bool rows_gradient_;  // the token embedding's gradient travels as touched rows
  bool fused_loss_, fused_blocks_;
  WorkingWeights weights_;
  std::unique_ptr<Gradients> gradients_;
  AdamW optimizer_;
  const CompiledParts* parts_ = nullptr;
};

}  // namespace trainsuite
