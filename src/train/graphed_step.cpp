#include "train/graphed_step.h"

#include <ATen/ATen.h>

namespace trainsuite {

GraphedStep::GraphedStep(const at::Tensor& like, std::int64_t accumulate)
    : batches_(at::stack(std::vector<at::Tensor>(static_cast<size_t>(accumulate), like))),
      loss_(at::zeros({}, like.options().dtype(at::kFloat))) {}

void GraphedStep::run(const std::function<void()>& step) {
  if (!captured_) {
    graph_.capture_begin();
    try {
      loss_.zero_();
      step();
    } catch (...) {
      try {  // the stream must leave its capture, whatever is left of the graph
        graph_.capture_end();
      } catch (const c10::Error&) {
      }
      throw;
    }
    graph_.capture_end();
    captured_ = true;
  }
  graph_.replay();
}

}  // namespace trainsuite
