#include "train/trainer.h"

#include <ATen/ATen.h>

#include "model/counter_hash.h"
#include "train/gradient_sync.h"

namespace trainsuite {
namespace {

at::ScalarType compute_dtype(const Case& work) {
  return work.precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

/// Gathering rows moves (ranks - 1) x rows, a ring all-reduce 2 (ranks - 1) / ranks x vocabulary.
bool rows_pay(const Case& work, int ranks) {
  return work.micro_batch * work.sequence * ranks < 2 * work.vocabulary;
}

std::unique_ptr<Gradients> make_gradients(const Case& work, WorkingWeights& weights,
                                          Communicator* communicator, bool rows) {
  if (!communicator) return std::make_unique<LocalGradients>(weights);
  GradientSyncOptions options;
  options.wire = work.wire == "bf16" ? at::kBFloat16 : at::kFloat;
  if (rows) options.sparse_uses = {0};  // gpt2_uses begins with the token embedding
  return std::make_unique<GradientSync>(weights, *communicator, options);
}

}  // namespace

Trainer::Trainer(const Case& work, const DeviceInfo& device, Placement place,
                 Communicator* communicator)
    : work_(work),
      device_(device.torch_device()),
      place_(place),
      summed_ranks_(communicator ? communicator->size() : 1),
      rows_gradient_(rows_pay(work, summed_ranks_)),
      model_(make_model(work, device_, rows_gradient_)),
      weights_(model_->parameters(), model_->uses(), compute_dtype(work), device_, work.seed,
               pure_bf16(work) ? at::kBFloat16 : at::kFloat),
      gradients_(make_gradients(work, weights_, communicator, rows_gradient_)),
      optimizer_(weights_, {.learning_rate = work.learning_rate}) {}

at::Tensor Trainer::tokens(std::int64_t index, std::int64_t micro_step, Shape shape) const {
  const auto first = (micro_step * place_.ranks + place_.rank) * shape.micro_batch;
  return random_tokens(work_.seed, index, first, shape.micro_batch, shape.sequence + 1,
                       model_->vocabulary(), device_);
}

void Trainer::step(std::int64_t index, Shape shape, StepClock& clock, at::Tensor loss) {
  clock.begin_step();
  if (graphed_) return step_in_graph(index, shape, clock, loss);
  train([&](std::int64_t micro_step) { return tokens(index, micro_step, shape); }, shape, clock,
        loss);
}

void Trainer::step_in_graph(std::int64_t index, Shape shape, StepClock& clock, at::Tensor loss) {
  const auto fresh = [&](std::int64_t micro_step) { return tokens(index, micro_step, shape); };
  if (!graph_) graph_ = std::make_unique<GraphedStep>(fresh(0), work_.accumulate);
  for (std::int64_t micro_step = 0; micro_step < work_.accumulate; ++micro_step) {
    graph_->batch(micro_step).copy_(fresh(micro_step));
  }
  const auto silent = make_step_clock(false, 0, 0, /*enabled=*/false);
  graph_->run([&] {
    train([&](std::int64_t micro_step) { return graph_->batch(micro_step); }, shape, *silent,
          graph_->loss());
  });
  clock.mark(Phase::optimizer);  // the whole of it: phases of a graph are not told apart
  loss.copy_(graph_->loss());
}

void Trainer::train(const Batches& batches, Shape shape, StepClock& clock, at::Tensor loss) {
  const auto labels = shape.micro_batch * shape.sequence * work_.accumulate;
  const double scale = 1.0 / static_cast<double>(labels * summed_ranks_);
  for (std::int64_t micro_step = 0; micro_step < work_.accumulate; ++micro_step) {
    const auto batch = batches(micro_step);
    clock.mark(Phase::data);
    const auto part = model_->loss(weights_.leaves(), batch, scale, parts_);
    clock.mark(Phase::forward);
    gradients_->begin_backward(micro_step == 0, micro_step + 1 == work_.accumulate);
    part.backward();
    loss.add_(part.detach(), summed_ranks_);  // this rank's sum over its labels
    clock.mark(Phase::backward);
  }
  gradients_->finish();
  clock.mark(Phase::exposed_sync);
  optimizer_.step(gradients_->gradients());
  gradients_->release();
  clock.mark(Phase::optimizer);
}

}  // namespace trainsuite
