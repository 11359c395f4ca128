#pragma once
// A decoder to fine-tune: whole, or frozen (as it is or in NF4) with low-rank adapters.
#include <functional>

#include "data/batches.h"
#include "model/decoder.h"
#include "run/case.h"
#include "train/working_weights.h"

namespace trainsuite {

/// The values of parameter `index` of decoder_parameters, any dtype, on any device.
using WeightSource = std::function<at::Tensor(std::size_t index, const ParameterSpec& spec)>;
/// Seeded random values, the same on every rank and device.
WeightSource random_weights(std::int64_t seed, at::Device device);

/// A micro-batch on the device.
struct DeviceBatch {
  at::Tensor tokens, targets;
  at::Tensor positions;  // packed only
  TokenLayout layout;
};

struct FinetuneBytes {
  std::int64_t float32 = 0, bfloat16 = 0, nf4 = 0;  // of all weights, adapters included
};

class FinetuneModel {
 public:
  /// `compute`: the dtype of matrix products. `longest`: tokens of the longest example.
  FinetuneModel(const DecoderConfig& config, const FinetuneRecipe& recipe, at::ScalarType compute,
                at::Device device, std::int64_t seed, std::int64_t longest,
                const WeightSource& source);

  /// From now on layers add their weights' gradients to the sink's sums, by the trainable weights'
  /// uses. Embedding and last norm stay with autograd.
  void sink_gradients(GradientSink& sink);

  /// Before each micro-batch that trains: another mask for the adapters' dropout.
  void draw_dropout(std::int64_t micro_batch);

  /// What trains: all parameters, or the adapters.
  WorkingWeights& trainable() { return trainable_; }
  /// `longest`: at least the longest packed example, where batches of one shape shall have one
  /// layout; 0: found.
  DeviceBatch upload(const Batch& batch, std::int64_t longest = 0) const;
  /// The angles of the batch's tokens.
  RotaryTable rotary(const DeviceBatch& batch) const;
  /// scale x sum of the losses, 0-d fp32; without gradients also without dropout.
  /// `sparse_gradient`: of the embedding, where it trains. `fused_loss`: linear_cross_entropy, else
  /// whole fp32 logits. `fused_blocks`: as DecoderShape's. `block`: as DecoderChoices'.
  at::Tensor loss(const DeviceBatch& batch, double scale, bool sparse_gradient, bool fused_loss,
                  bool fused_blocks, BlockFunction block = {}) const;

  std::int64_t parameter_count() const { return decoder_parameter_count(config_) + adapters(); }
  std::int64_t trainable_count() const { return trainable_.parameter_count(); }
  FinetuneBytes bytes() const;

  const DecoderConfig& config() const { return config_; }
  const FinetuneRecipe& recipe() const { return recipe_; }
  const DecoderWeights& weights() const { return weights_; }
  const WorkingWeights& trainable() const { return trainable_; }
  /// Order-sensitive hash of the frozen and the trainable weights.
  std::int64_t hash() const;

 private:
  bool full() const { return recipe_.method == "full"; }
  std::int64_t adapters() const { return full() ? 0 : trainable_.parameter_count(); }
  void take_frozen(const WeightSource& source, at::ScalarType compute, at::Device device);
  Linear frozen_linear(const at::Tensor& weight, at::ScalarType compute);
  void add_adapters();

  DecoderConfig config_;
  FinetuneRecipe recipe_;
  WorkingWeights trainable_;
  RotaryTable rotary_;  // of every position
  std::vector<at::Tensor> frozen_;
  std::int64_t seed_;
  at::Tensor dropout_counter_;
  DecoderWeights weights_;
};

/// The adapters of a decoder in order: for qkv_proj, o_proj, gate_up_proj and down_proj of each
/// layer "<matrix>.lora_a" [parts x rank, in] and "<matrix>.lora_b" [out, rank]. A as peft's
/// initial values have it: mean 0, deviation 1 / sqrt(3 in), here near normal; B is 0.
std::vector<ParameterSpec> adapter_parameters(const DecoderConfig& config, std::int64_t rank);

}  // namespace trainsuite
