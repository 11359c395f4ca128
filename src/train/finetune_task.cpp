#include "train/finetune_task.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "model/counter_hash.h"
#include "train/finetune_parts.h"
#include "train/finetune_saving.h"
#include "train/gradient_sync.h"
#include "train/micro_batch_graphs.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kEvaluationBatch = 8;  // examples

BatchOptions batch_options(const Case& work, Placement place) {
  return {.micro_batch = work.micro_batch,
          .accumulate = work.accumulate,
          .rank = place.rank,
          .ranks = place.ranks,
          .answers_only = work.finetune->loss_on == "answer",
          .packed = work.finetune->packing == "on",
          .length_buckets = work.finetune->length_buckets,
          .pack_to = work.finetune->pack_to};
}

std::int64_t longest_example(const TrainingData& data) {
  std::int64_t longest = 1;
  for (const Examples* part : {&data.train, &data.held_out}) {
    for (std::int64_t i = 0; i < part->count(); ++i) longest = std::max(longest, part->length(i));
  }
  return longest;
}

std::int64_t positions_needed(const Case& work, const TrainingData& data) {
  const auto& buckets = work.finetune->length_buckets;
  return std::max(longest_example(data), buckets.empty() ? 1 : buckets.back());
}

/// At least the longest example of any packed row, its padding too.
std::int64_t longest_packed(const Case& work, const TrainingData& data) {
  return std::max(longest_example(data), work.finetune->pack_to);
}

at::ScalarType compute_dtype(const Case& work) {
  return work.precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

std::unique_ptr<Gradients> make_gradients(const Case& work, WorkingWeights& weights,
                                          Communicator* communicator) {
  if (work.execution == "graph") return std::make_unique<KeptGradients>(weights, communicator);
  if (!communicator) return std::make_unique<LocalGradients>(weights);
  return std::make_unique<GradientSync>(weights, *communicator, GradientSyncOptions{});
}

class FinetuneTask final : public TrainingTask {
 public:
  FinetuneTask(const Case& work, const DecoderConfig& config, const TrainingData& data,
               const WeightSource& source, const DeviceInfo& device, Placement place,
               Communicator* communicator)
      : work_(work),
        data_(data),
        place_(place),
        communicator_(communicator),
        cuda_(device.cuda),
        device_(device.torch_device()),
        longest_packed_(longest_packed(work, data)),
        plan_(data.train, batch_options(work, place)),
        model_(config, *work.finetune, compute_dtype(work), device_, work.seed,
               positions_needed(work, data), source),
        gradients_(make_gradients(work, model_.trainable(), communicator)),
        optimizer_(model_.trainable(), {.learning_rate = work.learning_rate,
                                        .foreach = work.finetune->optimizer == "foreach"}),
        loss_scale_(at::zeros({}, at::TensorOptions().device(device_))),
        loss_sum_(at::zeros_like(loss_scale_)) {
    if (work.execution == "compile") check_compilable(work, config);
    auto* const sink = dynamic_cast<GradientSink*>(gradients_.get());
    if (sink && fused_blocks()) model_.sink_gradients(*sink);
  }

  Settings facts() override {
    const FinetuneBytes bytes = model_.bytes();
    Settings facts{{"initial_weights_hash", weights_hash()},
                   {"weight_bytes_float32", bytes.float32}};
    if (bytes.bfloat16 > 0) facts.push_back({"weight_bytes_bfloat16", bytes.bfloat16});
    if (bytes.nf4 > 0) facts.push_back({"weight_bytes_nf4", bytes.nf4});
    facts.push_back({"tokens_hash", tensor_hash(at::tensor(data_.train.ids)).item<std::int64_t>()});
    facts.push_back({"optimizer_bytes", optimizer_.state_bytes()});
    facts.push_back({"gradient_bytes", 4 * model_.trainable_count()});
    facts.push_back({"parameters_total", model_.parameter_count()});
    facts.push_back({"parameters_trainable", model_.trainable_count()});
    facts.push_back({"examples_without_labels", plan_.examples_without_labels()});
    return facts;
  }

  Settings before_steps() override { return held_out("held_out_loss_before"); }
  Settings after_steps() override {
    Settings facts = held_out("held_out_loss_after");
    if (work_.execution == "compile") {
      facts.push_back({"compiled_micro_batches", compiled_micro_batches_});
      facts.push_back({"eager_micro_batches", eager_micro_batches_});
    }
    if (graphs_) {
      facts.push_back({"graphs", graphs_->graphs()});
      facts.push_back({"graph_micro_batches", graphs_->replays()});
      facts.push_back({"eager_micro_batches", eager_micro_batches_ + graphs_->eager_runs()});
    }
    if (!work_.finetune->save.empty() && place_.rank == 0) save_model(model_, work_.name());
    return facts;
  }

  void step(std::int64_t index, StepClock& clock, at::Tensor loss) override {
    const auto labels = plan_.step_labels(index), own_labels = plan_.rank_labels(index);
    clock.begin_step();
    loss_scale_.fill_(labels > 0 ? 1.0 / static_cast<double>(labels) : 0);
    loss_sum_.zero_();
    for (std::int64_t micro_step = 0; micro_step < work_.accumulate; ++micro_step) {
      const Batch batch = plan_.batch(index, micro_step, cuda_);
      gradients_->begin_backward(micro_step == 0, micro_step + 1 == work_.accumulate);
      if (batch.labels == 0) continue;
      model_.draw_dropout((index * work_.accumulate + micro_step) * place_.ranks + place_.rank);
      train(model_.upload(batch, longest_packed_), clock);
    }
    if (own_labels > 0) loss.add_(loss_sum_, 1.0 / static_cast<double>(own_labels));
    gradients_->finish();
    clock.mark(Phase::exposed_sync);
    if (labels > 0) optimize(index);
    gradients_->release();
    clock.mark(Phase::optimizer);
    if (own_labels == 0) loss.fill_(std::numeric_limits<float>::quiet_NaN());
  }

  void use_parts(const CompiledParts* parts) override { parts_ = parts; }
  void use_graph(bool graphed) override {
    graphs_ = graphed ? std::make_unique<MicroBatchGraphs>() : nullptr;
  }
  void small_step(std::int64_t, StepClock&, at::Tensor) override {}
  bool has_small_step() const override { return false; }
  StepTokens tokens(std::int64_t index) const override {
    return {static_cast<double>(plan_.computed_tokens(index)),
            static_cast<double>(plan_.effective_tokens(index))};
  }
  bool has_loss(std::int64_t index) const override { return plan_.rank_labels(index) > 0; }
  std::int64_t weights_hash() override { return model_.hash(); }

 private:
  void train(const DeviceBatch& batch, StepClock& clock) {
    clock.mark(Phase::data);
    if (!graphs_ || !graphable(batch)) {
      if (graphs_) ++eager_micro_batches_;
      return forward_backward(batch, clock);
    }
    const auto silent = make_step_clock(false, 0, 0, /*enabled=*/false);
    graphs_->run(batch, [&](const DeviceBatch& inputs) { forward_backward(inputs, *silent); });
    clock.mark(Phase::backward);  // and forward: phases of a graph are not told apart
  }

  /// Adds to the gradients and to loss_sum_. The step's scale comes in with backward, in a tensor,
  /// so that a graph holds no number of it.
  void forward_backward(const DeviceBatch& batch, StepClock& clock) {
    const at::Tensor part = model_.loss(batch, 1, communicator_ == nullptr, fused_loss(),
                                        fused_blocks(), compiled_block(batch));
    clock.mark(Phase::forward);
    part.backward(loss_scale_);
    loss_sum_.add_(part.detach());
    clock.mark(Phase::backward);
  }

  /// Whether micro-batches of this shape come again and differ in what tensors hold alone.
  bool graphable(const DeviceBatch& batch) const {
    const FinetuneRecipe& recipe = *work_.finetune;
    if (batch.positions.defined()) return recipe.pack_to > 1;
    return batch.layout.batch == work_.micro_batch &&
           std::ranges::find(recipe.length_buckets, batch.layout.sequence) !=
               recipe.length_buckets.end();
  }

  /// Empty where no compiled block has this micro-batch's shape: its blocks then run eagerly.
  BlockFunction compiled_block(const DeviceBatch& batch) {
    if (!parts_) return {};
    BlockFunction block = compiled_block_of(work_, *parts_, batch.layout, model_.rotary(batch));
    ++(block ? compiled_micro_batches_ : eager_micro_batches_);
    return block;
  }

  bool fused_blocks() const { return work_.block_kernel != "reference"; }
  bool fused_loss() const { return work_.loss_kernel != "reference"; }

  /// AdamW at the cosine's rate: from the full one at the first step to 0 after the last.
  void optimize(std::int64_t index) {
    const auto total = static_cast<double>(work_.warmup + work_.steps);
    const double progress = static_cast<double>(index) / total;
    optimizer_.set_learning_rate(work_.learning_rate * (1 + std::cos(std::numbers::pi * progress)) /
                                 2);
    optimizer_.step(gradients_->gradients());
  }

  /// Nothing where no held-out example has a label.
  Settings held_out(const char* name) const {
    const double loss = held_out_loss();
    if (std::isnan(loss) && data_.held_out.count() == 0) return {};
    return {{name, loss}};
  }

  /// Mean over all held-out labels, NaN without any. Ranks share the examples out.
  double held_out_loss() const {
    const c10::NoGradGuard no_grad;
    BatchOptions options = batch_options(work_, place_);
    options.length_buckets.clear();
    options.pack_to = 1;
    const std::int64_t count = data_.held_out.count();
    at::Tensor sums = at::zeros({2}, at::TensorOptions().dtype(at::kFloat).device(device_));
    std::int64_t labels = 0;
    at::Tensor total = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device_));
    for (std::int64_t first = place_.rank * kEvaluationBatch; first < count;
         first += place_.ranks * kEvaluationBatch) {
      const std::int64_t examples = std::min(kEvaluationBatch, count - first);
      std::int64_t longest = 0;
      for (std::int64_t i = 0; i < examples; ++i) {
        longest = std::max(longest, data_.held_out.length(first + i));
      }
      const Batch batch = make_batch(data_.held_out, first, examples, longest, options, cuda_);
      if (batch.labels == 0) continue;
      labels += batch.labels;
      total.add_(model_.loss(model_.upload(batch), 1, false, true, fused_blocks()));
    }
    sums[0].copy_(total);
    sums[1].fill_(static_cast<double>(labels));
    if (communicator_) {
      communicator_->all_reduce(sums);
      communicator_->synchronize();
    }
    const at::Tensor host = sums.to(at::kCPU, at::kDouble);
    return host[0].item<double>() / host[1].item<double>();
  }

  Case work_;
  const TrainingData& data_;
  Placement place_;
  Communicator* communicator_;
  bool cuda_;
  c10::Device device_;
  std::int64_t longest_packed_;
  BatchPlan plan_;
  FinetuneModel model_;
  std::unique_ptr<Gradients> gradients_;
  AdamW optimizer_;
  at::Tensor loss_scale_, loss_sum_;  // of the step, 0-d fp32
  const CompiledParts* parts_ = nullptr;
  std::int64_t compiled_micro_batches_ = 0, eager_micro_batches_ = 0;
  std::unique_ptr<MicroBatchGraphs> graphs_;  // before the gradients they add to
};

}  // namespace

std::unique_ptr<TrainingTask> make_finetune_task(const Case& work, const DecoderConfig& config,
                                                 const TrainingData& data,
                                                 const WeightSource& source,
                                                 const DeviceInfo& device, Placement place,
                                                 Communicator* communicator) {
  return std::make_unique<FinetuneTask>(work, config, data, source, device, place, communicator);
}

std::int64_t steps_of_one_pass(std::int64_t examples, const Case& work) {
  const std::int64_t per_step = work.micro_batch * work.accumulate * work.ranks;
  return (examples + per_step - 1) / per_step;
}

}  // namespace trainsuite
