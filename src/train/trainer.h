#pragma once
// One training step, readable from top to bottom.
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "device/device.h"
#include "device/step_clock.h"
#include "run/case.h"
#include "train/compiled_parts.h"
#include "train/gradients.h"
#include "train/graphed_step.h"
#include "train/optimizer.h"
#include "train/trained_model.h"

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
  /// From the next step on a CUDA graph is captured once and replayed; steps of one shape only.
  void use_graph(bool graphed) { graphed_ = graphed; }

  /// This rank's tokens [micro_batch, sequence + 1] of a micro-batch of a step: the ranks' shares
  /// of one joint micro-batch lie side by side, so N ranks of B see what one rank of N x B sees.
  at::Tensor tokens(std::int64_t index, std::int64_t micro_step, Shape shape) const;

  const WorkingWeights& weights() const { return weights_; }
  const Gradients& gradients() const { return *gradients_; }
  std::int64_t optimizer_bytes() const { return optimizer_.state_bytes(); }
  std::int64_t gradient_bytes() const { return gradients_->total_bytes(work_.accumulate); }
  bool rows_gradient() const { return rows_gradient_; }

 private:
  using Batches = std::function<at::Tensor(std::int64_t micro_step)>;
  void train(const Batches& batches, Shape shape, StepClock& clock, at::Tensor loss);
  void step_in_graph(std::int64_t index, Shape shape, StepClock& clock, at::Tensor loss);

  Case work_;
  c10::Device device_;
  Placement place_;
  bool graphed_ = false;
  int summed_ranks_;    // ranks that the gradient is summed over, 1 without a communicator
  bool rows_gradient_;  // the token embedding's gradient travels as touched rows
  std::unique_ptr<TrainedModel> model_;
  WorkingWeights weights_;
  std::unique_ptr<Gradients> gradients_;
  AdamW optimizer_;
  const CompiledParts* parts_ = nullptr;
  std::unique_ptr<GraphedStep> graph_;  // of the whole step, once it is captured
};

}  // namespace trainsuite
