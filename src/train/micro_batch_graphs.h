#pragma once
// Forward and backward of micro-batches as CUDA graphs, one for each shape.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAGraph.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "train/finetune_model.h"

namespace trainsuite {

/// The graphs share one memory pool: none leaves anything in it for another. Uses the current
/// stream, which must not be the default one.
class MicroBatchGraphs {
 public:
  using Work = std::function<void(const DeviceBatch& batch)>;

  /// Does `work` on the batch, whose shape must tell its layout (but for the places of bounds and
  /// positions). The first of a shape runs eagerly, which makes what kernels make when first used;
  /// the second captures `work`, which must enqueue alone, read no host memory and leave its
  /// results in tensors that are there before; it and all later ones replay that.
  void run(const DeviceBatch& batch, const Work& work);

  std::int64_t eager_runs() const { return eager_runs_; }
  std::int64_t replays() const { return replays_; }
  std::int64_t graphs() const { return static_cast<std::int64_t>(graphs_.size()); }

 private:
  struct Graph {
    DeviceBatch inputs;  // static
    at::cuda::CUDAGraph graph;
  };

  using Shape = std::pair<std::int64_t, std::int64_t>;
  std::map<Shape, std::int64_t> seen_;
  std::map<Shape, std::unique_ptr<Graph>> graphs_;
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::int64_t eager_runs_ = 0, replays_ = 0;
};

}  // namespace trainsuite
