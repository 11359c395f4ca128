#pragma once
// Where backward's gradients go. Hooks on the leaves hand each gradient over as soon as it is
// ready, so that no leaf keeps one.
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.h"
#include "model/gradient_sink.h"
#include "train/working_weights.h"

namespace trainsuite {

class Gradients {
 public:
  /// Installs the hooks; `weights` must outlive this object.
  explicit Gradients(WorkingWeights& weights);
  virtual ~Gradients();  // removes them
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// Before each backward of an optimizer step: is it the step's first, its last micro-batch?
  virtual void begin_backward(bool first, bool last) = 0;
  /// After the last backward: gradients() is final in the current stream's order.
  virtual void finish() = 0;
  /// After the optimizer.
  virtual void release() = 0;
  /// One a parameter, in its shape; in its dtype, or in a narrower one that it came in. Undefined
  /// where it had no gradient on any rank.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// Of gradients() after a step of that many micro-batches.
  virtual std::int64_t total_bytes(std::int64_t micro_batches) const;

 protected:
  /// One use's gradient, in the leaf's dtype, any strides, dense or sparse (rows of dimension 0).
  virtual void receive(size_t use, const at::Tensor& gradient) = 0;

  WorkingWeights& weights_;
  std::vector<at::Tensor> gradients_;

 private:
  friend struct ReceiveHook;
};

/// Adds the rows of a sparse gradient to `dense`. Duplicate rows are summed in a fixed order, so
/// equal inputs give equal bits on every rank.
void add_rows_(at::Tensor& dense, const at::Tensor& row_ids, const at::Tensor& rows);

/// Gradients of one rank without communication: autograd's own, freed after the optimizer. What is
/// summed, over micro-batches or a tied parameter's uses, is summed in the parameter's dtype; a
/// gradient that is alone stays in its leaf's. Layers may also add to the sums themselves.
class LocalGradients final : public Gradients, public GradientSink {
 public:
  using Gradients::Gradients;
  void begin_backward(bool first, bool last) override;
  void finish() override {}
  void release() override;
  std::int64_t total_bytes(std::int64_t micro_batches) const override;
  Sum sum(size_t use) override;

 private:
  void receive(size_t use, const at::Tensor& gradient) override;
  at::Tensor& widened(size_t parameter);
};

/// Gradients that keep their place from step to step, as CUDA graphs need them: fp32 sums in one
/// buffer, zeroed when a step begins and, with a communicator, summed over ranks when it ends.
class KeptGradients final : public Gradients, public GradientSink {
 public:
  /// `communicator`: null on one rank alone.
  KeptGradients(WorkingWeights& weights, Communicator* communicator);
  void begin_backward(bool first, bool last) override;
  void finish() override;
  void release() override {}
  Sum sum(size_t use) override { return {gradients_[weights_.uses()[use].parameter], false}; }

 private:
  void receive(size_t use, const at::Tensor& gradient) override;

  Communicator* communicator_;
  at::Tensor buffer_;
};

}  // namespace trainsuite
