#include "train/finetune_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/adapter_dropout.h"
#include "model/counter_hash.h"

namespace trainsuite {
namespace {

// Adapters draw from another sequence than the base's parameters of the same index.
constexpr std::int64_t kAdapterSeed = std::int64_t{1} << 32;

struct JointMatrix {
  const char* name;
  std::int64_t in;
  std::vector<std::int64_t> rows;  // of each matrix in it
};

std::vector<JointMatrix> joint_matrices(const DecoderConfig& c) {
  const std::int64_t query = c.heads * c.head_width, key = c.key_value_heads * c.head_width;
  return {{"self_attn.qkv_proj", c.width, {query, key, key}},
          {"self_attn.o_proj", query, {c.width}},
          {"mlp.gate_up_proj", c.width, {c.hidden, c.hidden}},
          {"mlp.down_proj", c.hidden, {c.width}}};
}

std::vector<ParameterUse> all_in_compute_dtype(std::size_t count) {
  std::vector<ParameterUse> uses;
  for (std::size_t i = 0; i < count; ++i) uses.push_back({i, true});
  return uses;
}

WorkingWeights trainable_weights(const DecoderConfig& config, const FinetuneRecipe& recipe,
                                 at::ScalarType compute, at::Device device, std::int64_t seed) {
  if (recipe.method == "full") {
    std::vector<ParameterSpec> specs = decoder_parameters(config);
    for (ParameterSpec& spec : specs) spec.init_std = 0;  // the values come from the source
    return {specs, decoder_uses(config), compute, device, seed};
  }
  const auto specs = adapter_parameters(config, recipe.lora_rank);
  return {specs, all_in_compute_dtype(specs.size()), compute, device, seed + kAdapterSeed};
}

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

/// What a quantized matrix keeps; none of a dense one.
std::vector<at::Tensor> nf4_tensors(const Nf4& quantized) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor :
       {quantized.codes, quantized.absmax, quantized.nested.codes, quantized.nested.absmax,
        quantized.nested.offset, quantized.nested.map}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return tensors;
}

/// Dropout is of training alone.
void drop_nothing(DecoderWeights& weights) {
  for (BlockWeights& block : weights.blocks) {
    for (Linear* linear : block.linears()) linear->adapters.dropout = {};
  }
}

}  // namespace

std::vector<ParameterSpec> adapter_parameters(const DecoderConfig& config, std::int64_t rank) {
  std::vector<ParameterSpec> list;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (const JointMatrix& joint : joint_matrices(config)) {
      const std::string name = fmt::format("layers.{}.{}", layer, joint.name);
      std::int64_t out = 0;
      for (const std::int64_t rows : joint.rows) out += rows;
      const auto parts = static_cast<std::int64_t>(joint.rows.size());
      const double std = 1 / std::sqrt(3.0 * static_cast<double>(joint.in));
      list.push_back({name + ".lora_a", {parts * rank, joint.in}, std, 0});
      list.push_back({name + ".lora_b", {out, rank}, 0, 0});
    }
  }
  return list;
}

WeightSource random_weights(std::int64_t seed, at::Device device) {
  return [seed, device](std::size_t index, const ParameterSpec& spec) {
    at::Tensor values =
        at::full(spec.shape, spec.init_constant, at::TensorOptions().device(device));
    if (spec.init_std > 0) {
      fill_initial_parameter_(values, seed, static_cast<std::int64_t>(index), spec.init_std);
    }
    return values;
  };
}

FinetuneModel::FinetuneModel(const DecoderConfig& config, const FinetuneRecipe& recipe,
                             at::ScalarType compute, at::Device device, std::int64_t seed,
                             std::int64_t longest, const WeightSource& source)
    : config_(config),
      recipe_(recipe),
      trainable_(trainable_weights(config, recipe, compute, device, seed)),
      rotary_(rotary_table(longest, config.head_width, config.rotary_base, device)),
      seed_(seed),
      dropout_counter_(at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device))) {
  const c10::NoGradGuard no_grad;
  if (!full()) {
    take_frozen(source, compute, device);
    add_adapters();
    return;
  }
  const auto specs = decoder_parameters(config);
  for (std::size_t i = 0; i < specs.size(); ++i)
    trainable_.parameters()[i].copy_(source(i, specs[i]));
  trainable_.refresh();
  weights_ = dense_decoder(config_, trainable_.leaves());
}

/// A matrix is kept in the compute dtype, or quantized from it.
Linear FinetuneModel::frozen_linear(const at::Tensor& weight, at::ScalarType compute) {
  Linear linear;
  if (recipe_.method == "lora") {
    linear.weight = weight;
    frozen_.push_back(weight);
    return linear;
  }
  linear.quantized = nf4_quantize(weight);
  if (recipe_.nf4_double_quant) linear.quantized = nf4_nested(linear.quantized);
  linear.shape = weight.sizes().vec();
  linear.compute_type = compute;
  for (const at::Tensor& tensor : nf4_tensors(linear.quantized)) frozen_.push_back(tensor);
  return linear;
}

void FinetuneModel::take_frozen(const WeightSource& source, at::ScalarType compute,
                                at::Device device) {
  const auto specs = decoder_parameters(config_);
  std::size_t next = 0;
  const auto value = [&](at::ScalarType dtype) {
    const std::size_t index = next++;
    return source(index, specs[index]).to(device, dtype);
  };
  const auto plain = [&] {  // embedding, norms
    frozen_.push_back(value(recipe_.wide_stream() ? at::kFloat : compute));
    return frozen_.back();
  };
  weights_.embedding = plain();
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    BlockWeights block;
    block.attention_norm = plain();
    block.qkv = frozen_linear(value(compute), compute);
    if (config_.qkv_bias) {
      block.qkv.bias = value(compute);
      frozen_.push_back(block.qkv.bias);
    }
    block.output = frozen_linear(value(compute), compute);
    block.mlp_norm = plain();
    block.gate_up = frozen_linear(value(compute), compute);
    block.down = frozen_linear(value(compute), compute);
    weights_.blocks.push_back(block);
  }
  weights_.norm = plain();
  weights_.head = config_.tied ? weights_.embedding : plain();
}

void FinetuneModel::add_adapters() {
  const auto joints = joint_matrices(config_);
  const at::TensorList leaves = trainable_.leaves();
  std::size_t next = 0;
  for (BlockWeights& block : weights_.blocks) {
    const auto linears = block.linears();
    for (std::size_t i = 0; i < joints.size(); ++i) {
      const double scale = recipe_.lora_alpha / static_cast<double>(recipe_.lora_rank);
      linears[i]->adapters = {leaves[next], leaves[next + 1], joints[i].rows, scale};
      linears[i]->adapters.dropout = {recipe_.lora_dropout, dropout_counter_,
                                      static_cast<std::int64_t>(next / 2)};
      next += 2;
    }
  }
}

void FinetuneModel::draw_dropout(std::int64_t micro_batch) {
  if (recipe_.lora_dropout > 0) dropout_counter_.fill_(dropout_counter(seed_, micro_batch));
}

void FinetuneModel::sink_gradients(GradientSink& sink) {
  std::size_t use = full() ? 1 : 0;  // the embedding's gradient is sparse
  for (BlockWeights& block : weights_.blocks) {
    for (Linear* const linear : block.linears()) {
      if (!full()) {
        linear->adapters.a_target = {&sink, use++};
        linear->adapters.b_target = {&sink, use++};
        continue;
      }
      if (linear == &block.qkv) block.attention_norm_target = {&sink, use++};
      if (linear == &block.gate_up) block.mlp_norm_target = {&sink, use++};
      linear->weight_target = {&sink, use++};
      if (linear->bias.defined()) linear->bias_target = {&sink, use++};
    }
  }
  if (full()) weights_.head_target = {&sink, use + 1};  // after the last norm
}

DeviceBatch FinetuneModel::upload(const Batch& batch, std::int64_t longest) const {
  const at::Device device = rotary_.cosine.device();
  const auto to_device = [&](const at::Tensor& host) {
    return host.to(device, /*non_blocking=*/true);
  };
  DeviceBatch uploaded{to_device(batch.tokens),
                       to_device(batch.targets),
                       {},
                       {batch.tokens.size(0), batch.tokens.size(1)}};
  if (!batch.positions.defined()) return uploaded;
  uploaded.positions = to_device(batch.positions);
  uploaded.layout.lengths = batch.lengths;
  uploaded.layout.bounds = to_device(batch.bounds);
  uploaded.layout.longest = longest;
  return uploaded;
}

RotaryTable FinetuneModel::rotary(const DeviceBatch& batch) const {
  if (!batch.positions.defined()) {
    const std::int64_t length = batch.layout.sequence;
    return {rotary_.cosine.narrow(0, 0, length), rotary_.sine.narrow(0, 0, length)};
  }
  return {rotary_.cosine.index_select(0, batch.positions),
          rotary_.sine.index_select(0, batch.positions)};
}

at::Tensor FinetuneModel::loss(const DeviceBatch& batch, double scale, bool sparse_gradient,
                               bool fused_loss, bool fused_blocks, BlockFunction block) const {
  DecoderChoices choices;
  choices.sparse_gradient = sparse_gradient && full();
  choices.fused_loss = fused_loss;
  choices.fused_blocks = fused_blocks;
  choices.block = std::move(block);
  choices.wide_outputs = recipe_.qlora_wide_outputs;
  choices.checkpointing = recipe_.checkpointing == "on";
  choices.loss_chunk_bytes = recipe_.loss_chunk_mib << 20;
  DecoderWeights weights = weights_;
  if (!c10::GradMode::is_enabled()) drop_nothing(weights);
  // An upcast embedding that is also the head is used there in the compute dtype.
  const at::ScalarType compute = input_dtype(weights.blocks.front().qkv);
  if (weights.head.scalar_type() != compute) weights.head = weights.head.to(compute);
  return decoder_loss(config_, weights, rotary(batch), batch.layout, batch.tokens, batch.targets,
                      scale, choices);
}

FinetuneBytes FinetuneModel::bytes() const {
  FinetuneBytes bytes;
  bytes.float32 = trainable_.fp32_bytes();
  bytes.bfloat16 = trainable_.copy_bytes();
  for (const at::Tensor& tensor : frozen_) {
    if (tensor.scalar_type() == at::kBFloat16) bytes.bfloat16 += bytes_of(tensor);
    if (tensor.scalar_type() == at::kFloat) bytes.float32 += bytes_of(tensor);
  }
  if (full()) return bytes;
  for (const BlockWeights& block : weights_.blocks) {
    for (const Linear* linear : block.linears()) {
      for (const at::Tensor& tensor : nf4_tensors(linear->quantized)) {
        bytes.nf4 += bytes_of(tensor);
        if (tensor.scalar_type() == at::kFloat) bytes.float32 -= bytes_of(tensor);
      }
    }
  }
  return bytes;
}

std::int64_t FinetuneModel::hash() const {
  std::vector<at::Tensor> hashes{trainable_.hash()};
  for (const at::Tensor& tensor : frozen_) hashes.push_back(tensor_hash(tensor));
  return tensor_hash(at::stack(hashes)).item<std::int64_t>();
}

}  // namespace trainsuite
