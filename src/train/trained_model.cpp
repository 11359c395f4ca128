#include "train/trained_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>

#include "model/decoder.h"
#include "model/gpt2.h"
#include "train/compiled_parts.h"

namespace trainsuite {
namespace {

at::ScalarType compute_dtype(const Case& work) {
  return work.precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

/// Of the uses from `first` on: matrices and their biases in the compute dtype, others in `other`.
std::vector<BlockTensor> used_tensors(const TrainedModel& model, at::ScalarType dtype,
                                      at::ScalarType other, std::size_t first, std::size_t count) {
  const auto specs = model.parameters();
  const auto uses = model.uses();
  std::vector<BlockTensor> tensors;
  for (std::size_t i = first; i < first + count; ++i) {
    tensors.push_back({specs[uses[i].parameter].shape, uses[i].compute_dtype ? dtype : other,
                       /*gradient=*/true});
  }
  return tensors;
}

class Gpt2Model final : public TrainedModel {
 public:
  Gpt2Model(const Case& work, bool rows_gradient)
      : work_(work),
        config_(gpt2_config(work.size, work.vocabulary, work.sequence)),
        rows_gradient_(rows_gradient) {}

  std::vector<ParameterSpec> parameters() const override { return gpt2_parameters(config_); }
  std::vector<ParameterUse> uses() const override { return gpt2_uses(config_); }
  std::int64_t vocabulary() const override { return config_.vocabulary; }

  at::Tensor loss(at::TensorList leaves, const at::Tensor& tokens, double scale,
                  const CompiledParts* parts) const override {
    return gpt2_loss(config_, leaves, tokens, scale, work_.loss_kernel == "fused", rows_gradient_,
                     work_.block_kernel == "fused", parts ? functions(*parts) : Gpt2Parts{});
  }

  std::vector<BlockRequest> requests() const override { return {block(), head()}; }

 private:
  static constexpr std::size_t embeddings = 2, block_parameters = 12, tail_parameters = 3;

  static Gpt2Parts functions(const CompiledParts& parts) {
    return {[&parts](const at::Tensor& x, at::TensorList p) {
              std::vector<at::Tensor> tensors{x};
              tensors.insert(tensors.end(), p.begin(), p.end());
              return parts.block(0)(tensors);
            },
            [&parts](const at::Tensor& x, at::TensorList tail, const at::Tensor& targets,
                     double scale) {
              return parts.block(1)({x, tail[0], tail[1], tail[2], targets.contiguous()}) * scale;
            }};
  }

  BlockTensor stream() const {
    return {{work_.micro_batch, work_.sequence, config_.width}, at::kFloat, /*gradient=*/true};
  }

  BlockRequest block() const {
    BlockRequest request{"gpt2-block", "gpt2_block", {}, {}};
    request.tensors =
        used_tensors(*this, compute_dtype(work_), at::kFloat, embeddings, block_parameters);
    request.tensors.insert(request.tensors.begin(), stream());
    request.arguments = {TensorAt{0}, TensorsFrom{1, block_parameters}, config_.heads,
                         work_.block_kernel == "fused"};
    return request;
  }

  BlockRequest head() const {
    BlockRequest request{"gpt2-head", "gpt2_head_loss", {}, {}};
    request.tensors = used_tensors(*this, compute_dtype(work_), at::kFloat,
                                   uses().size() - tail_parameters, tail_parameters);
    request.tensors.insert(request.tensors.begin(), stream());
    request.tensors.push_back({{work_.micro_batch, work_.sequence}, at::kLong, false});
    // The scale comes after the head: it depends on the number of ranks.
    request.arguments = {TensorAt{0},
                         TensorAt{1},
                         TensorAt{2},
                         TensorAt{3},
                         TensorAt{4},
                         1.0,
                         work_.loss_kernel == "fused"};
    request.attention = false;
    return request;
  }

  Case work_;
  Gpt2Config config_;
  bool rows_gradient_;
};

class DecoderModel final : public TrainedModel {
 public:
  DecoderModel(const Case& work, at::Device device)
      : work_(work),
        config_(decoder_config(work.size, work.vocabulary)),
        rotary_(rotary_table(work.sequence, config_.head_width, config_.rotary_base, device)) {}

  std::vector<ParameterSpec> parameters() const override { return decoder_parameters(config_); }
  std::vector<ParameterUse> uses() const override { return decoder_uses(config_); }
  std::int64_t vocabulary() const override { return config_.vocabulary; }

  at::Tensor loss(at::TensorList leaves, const at::Tensor& tokens, double scale,
                  const CompiledParts* parts) const override {
    const std::int64_t sequence = tokens.size(1) - 1;
    const at::Tensor inputs = tokens.narrow(1, 0, sequence);
    const at::Tensor targets = tokens.narrow(1, 1, sequence).contiguous();
    if (parts) return loss_of_parts(leaves, inputs, targets, scale, *parts);
    const RotaryTable rotary{rotary_.cosine.narrow(0, 0, sequence),
                             rotary_.sine.narrow(0, 0, sequence)};
    DecoderChoices choices;
    choices.naive_attention = naive();
    choices.fused_loss = work_.loss_kernel == "fused";
    choices.fused_blocks = work_.block_kernel == "fused";
    return decoder_loss(config_, leaves, rotary, inputs, targets, scale, choices);
  }

  std::vector<BlockRequest> requests() const override { return {block(), head()}; }

 private:
  bool naive() const { return work_.attention == "naive"; }
  std::size_t block_parameters() const { return decoder_block_size(config_.qkv_bias); }

  at::Tensor loss_of_parts(at::TensorList leaves, const at::Tensor& inputs,
                           const at::Tensor& targets, double scale,
                           const CompiledParts& parts) const {
    at::Tensor x = at::embedding(leaves[0], inputs);
    const std::size_t count = block_parameters();
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(config_.layers); ++layer) {
      const at::TensorList p = leaves.slice(1 + layer * count, count);
      std::vector<at::Tensor> tensors{x};
      tensors.insert(tensors.end(), p.begin(), p.end());
      tensors.push_back(rotary_.cosine);
      tensors.push_back(rotary_.sine);
      x = parts.block(0)(tensors);
    }
    const at::TensorList tail = leaves.slice(leaves.size() - 2, 2);
    return parts.block(1)({x, tail[0], tail[1], targets}) * scale;
  }

  /// The residual stream has the embedding's dtype.
  BlockTensor stream() const {
    const auto dtype = pure_bf16(work_) ? at::kBFloat16 : at::kFloat;
    return {{work_.micro_batch, work_.sequence, config_.width}, dtype, /*gradient=*/true};
  }

  BlockRequest block() const {
    const std::size_t count = block_parameters();
    BlockRequest request{"decoder-block", "decoder_block", {}, {}};
    request.tensors = used_tensors(*this, compute_dtype(work_), stream().dtype, 1, count);
    request.tensors.insert(request.tensors.begin(), stream());
    for (int i = 0; i < 2; ++i) {  // cosine, sine
      request.tensors.push_back({{work_.sequence, config_.head_width / 2}, at::kFloat, false});
    }
    request.arguments = {TensorAt{0},
                         TensorsFrom{1, count},
                         TensorAt{count + 1},
                         TensorAt{count + 2},
                         config_.heads,
                         config_.key_value_heads,
                         config_.norm_epsilon,
                         naive(),
                         work_.block_kernel == "fused"};
    return request;
  }

  BlockRequest head() const {
    BlockRequest request{"decoder-head", "decoder_head_loss", {}, {}};
    request.tensors =
        used_tensors(*this, compute_dtype(work_), stream().dtype, uses().size() - 2, 2);
    request.tensors.insert(request.tensors.begin(), stream());
    request.tensors.push_back({{work_.micro_batch, work_.sequence}, at::kLong, false});
    request.arguments = {TensorAt{0},
                         TensorAt{1},
                         TensorAt{2},
                         TensorAt{3},
                         1.0,
                         config_.norm_epsilon,
                         work_.loss_kernel == "fused"};
    request.attention = false;
    return request;
  }

  Case work_;
  DecoderConfig config_;
  RotaryTable rotary_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_model(const Case& work, at::Device device, bool rows_gradient) {
  if (work.suite == "compile") return std::make_unique<DecoderModel>(work, device);
  return std::make_unique<Gpt2Model>(work, rows_gradient);
}

AttentionHeads attention_heads(const Case& work) {
  if (work.suite == "compile") {
    const auto config = decoder_config(work.size);
    return {config.heads, config.key_value_heads, config.head_width};
  }
  const auto config = gpt2_config(work.size, work.vocabulary, work.sequence);
  return {config.heads, config.heads, config.width / config.heads};
}

bool pure_bf16(const Case& work) { return work.suite == "compile" && work.precision == "bf16"; }

}  // namespace trainsuite
