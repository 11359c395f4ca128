#include "train/graphed_step.h"

#include <ATen/ATen.h>

namespace trainsuite {

void capture_graph(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool,
                   const std::function<void()>& work) {
  graph.capture_begin(pool);
  try {
    work();
  } catch (...) {
    try {  // the stream must leave its capture, whatever is left of the graph
      graph.capture_end();
    } catch (const c10::Error&) {
    }
    throw;
  }
  graph.capture_end();
}

GraphedStep::GraphedStep(const at::Tensor& like, std::int64_t accumulate)
    : batches_(at::stack(std::vector<at::Tensor>(static_cast<size_t>(accumulate), like))),
      loss_(at::zeros({}, like.options().dtype(at::kFloat))) {}

void GraphedStep::run(const std::function<void()>& step) {
  if (!captured_) {
    capture_graph(graph_, /*pool: its own*/ {0, 0}, [&] {
      loss_.zero_();
      step();
    });
    captured_ = true;
  }
  graph_.replay();
}

}  // namespace trainsuite
