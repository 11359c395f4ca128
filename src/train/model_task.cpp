#include <algorithm>

#include "model/counter_hash.h"
#include "train/training_task.h"

namespace trainsuite {
namespace {

class ModelTask final : public TrainingTask {
 public:
  ModelTask(const Case& work, const DeviceInfo& device, Placement place, Communicator* communicator)
      : work_(work), cuda_(device.cuda), trainer_(work, device, place, communicator) {}

  Settings facts() override {
    const WorkingWeights& weights = trainer_.weights();
    Settings facts{
        {"initial_weights_hash", weights_hash()},
        {"tokens_hash", tensor_hash(trainer_.tokens(0, 0, shape())).item<std::int64_t>()}};
    if (const auto bytes = weights.fp32_bytes(); bytes > 0) {
      facts.push_back({"weight_bytes_float32", bytes});
    }
    if (const auto bytes = weights.copy_bytes(); bytes > 0) {
      facts.push_back({"weight_bytes_bfloat16", bytes});
    }
    facts.push_back({"optimizer_bytes", trainer_.optimizer_bytes()});
    facts.push_back({"gradient_bytes", trainer_.gradient_bytes()});
    facts.push_back({"parameters_total", weights.parameter_count()});
    return facts;
  }

  void step(std::int64_t index, StepClock& clock, at::Tensor loss) override {
    trainer_.step(index, shape(), clock, std::move(loss));
  }

  void small_step(std::int64_t index, StepClock& clock, at::Tensor loss) override {
    const Trainer::Shape small{1, std::min<std::int64_t>(16, work_.sequence)};
    trainer_.step(index, compiled() ? shape() : small, clock, std::move(loss));
  }

  /// Packages have one shape, whose work hides the launching where it is done on the host.
  bool has_small_step() const override { return !compiled() || cuda_; }

  void use_parts(const CompiledParts* parts) override { trainer_.use_parts(parts); }
  void use_graph(bool graphed) override { trainer_.use_graph(graphed); }

  StepTokens tokens(std::int64_t) const override {
    const auto count = static_cast<double>(work_.micro_batch * work_.accumulate * work_.sequence);
    return {count, count};
  }

  std::int64_t weights_hash() override { return trainer_.weights().hash().item<std::int64_t>(); }

 private:
  bool compiled() const { return work_.execution != "eager"; }
  Trainer::Shape shape() const { return {work_.micro_batch, work_.sequence}; }

  Case work_;
  bool cuda_;
  Trainer trainer_;
};

}  // namespace

std::unique_ptr<TrainingTask> make_model_task(const Case& work, const DeviceInfo& device,
                                              Placement place, Communicator* communicator) {
  return std::make_unique<ModelTask>(work, device, place, communicator);
}

}  // namespace trainsuite
