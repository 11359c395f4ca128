#pragma once
// A training step of fixed shapes as one CUDA graph.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>

#include <functional>

namespace trainsuite {

/// What `work` enqueues on the current stream, which executes nothing of it. After a failure the
/// stream has left its capture.
void capture_graph(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool,
                   const std::function<void()>& work);

/// Static inputs, the graph and its private memory pool. Uses the current stream, which must not be
/// the default one. Destroy it before the communicator whose collectives it holds.
class GraphedStep {
 public:
  /// `like`: a batch of tokens; the static input is [accumulate] of it.
  GraphedStep(const at::Tensor& like, std::int64_t accumulate);

  /// Where the tokens of a micro-batch are copied to before run().
  at::Tensor batch(std::int64_t micro_step) const { return batches_.select(0, micro_step); }
  /// The step's loss, 0-d fp32, zeroed at its start; valid until the next run().
  const at::Tensor& loss() const { return loss_; }

  /// Captures `step` at the first call, which executes nothing, and replays it at each.
  void run(const std::function<void()>& step);

 private:
  at::Tensor batches_, loss_;
  at::cuda::CUDAGraph graph_;
  bool captured_ = false;
};

}  // namespace trainsuite
