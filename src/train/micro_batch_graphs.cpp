#include "train/micro_batch_graphs.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "train/graphed_step.h"

namespace trainsuite {
namespace {

void copy(const DeviceBatch& from, const DeviceBatch& to) {
  to.tokens.copy_(from.tokens);
  to.targets.copy_(from.targets);
  if (from.positions.defined()) to.positions.copy_(from.positions);
  if (from.layout.bounds.defined()) to.layout.bounds.copy_(from.layout.bounds);
}

DeviceBatch cloned(const DeviceBatch& batch) {
  const auto clone = [](const at::Tensor& x) { return x.defined() ? x.clone() : x; };
  DeviceBatch made{clone(batch.tokens), clone(batch.targets), clone(batch.positions), batch.layout};
  made.layout.bounds = clone(batch.layout.bounds);
  return made;
}

}  // namespace

void MicroBatchGraphs::run(const DeviceBatch& batch, const Work& work) {
  const Shape shape{batch.tokens.size(0), batch.tokens.size(1)};
  if (++seen_[shape] == 1) {
    ++eager_runs_;
    return work(batch);
  }
  auto& graph = graphs_[shape];
  if (graph) {
    copy(batch, graph->inputs);
  } else {
    // What eager micro-batches have left behind is given back: graphs have a pool of their own.
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph = std::make_unique<Graph>();
    graph->inputs = cloned(batch);
    capture_graph(graph->graph, pool_, [&] { work(graph->inputs); });
  }
  graph->graph.replay();
  ++replays_;
}

}  // namespace trainsuite
