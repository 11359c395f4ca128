#include "train/finetune_parts.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "model/nf4.h"
#include "train/finetune_model.h"

namespace trainsuite {
namespace {

constexpr std::size_t kAdapterTensors = 8;

/// What the blocks of one case have in common.
class BlockOf {
 public:
  explicit BlockOf(const Case& work)
      : work_(work),
        recipe_(*work.finetune),
        config_(decoder_config(work.size, work.vocabulary)),
        compute_(work.precision == "bf16" ? at::kBFloat16 : at::kFloat) {}

  BlockRequest request(std::int64_t length) const {
    const bool full = recipe_.method == "full";
    BlockRequest request{fmt::format("{}-block-{}", recipe_.method, length),
                         full ? "decoder_block" : "decoder_adapted_block",
                         {{{work_.micro_batch, length, config_.width}, plain(), true}},
                         {TensorAt{0}}};
    if (!full) add_adapters(request);
    const std::size_t first = request.tensors.size();
    add_block(request, /*trains=*/full);
    const std::size_t rotary = request.tensors.size();
    request.arguments.emplace_back(TensorsFrom{first, rotary - first});
    if (!full) request.arguments.emplace_back(TensorsFrom{1, kAdapterTensors});
    for (std::size_t i = 0; i < 2; ++i) {  // cosine, sine
      request.tensors.push_back({{length, config_.head_width / 2}, at::kFloat, false});
      request.arguments.emplace_back(TensorAt{rotary + i});
    }
    request.arguments.emplace_back(config_.heads);
    request.arguments.emplace_back(config_.key_value_heads);
    request.arguments.emplace_back(config_.norm_epsilon);
    if (!full) {
      request.arguments.emplace_back(recipe_.lora_alpha / static_cast<double>(recipe_.lora_rank));
    }
    request.arguments.emplace_back(work_.attention == "naive");
    request.arguments.emplace_back(work_.block_kernel != "reference");
    return request;
  }

 private:
  /// Of the embedding, so of the residual stream, and of norms.
  at::ScalarType plain() const { return recipe_.wide_stream() ? at::kFloat : compute_; }

  void add_adapters(BlockRequest& request) const {
    const auto specs = adapter_parameters(config_, recipe_.lora_rank);
    for (std::size_t i = 0; i < kAdapterTensors; ++i) {
      request.tensors.push_back({specs[i].shape, compute_, true});
    }
  }

  void add_block(BlockRequest& request, bool trains) const {
    const auto specs = decoder_parameters(config_);
    const auto uses = decoder_uses(config_);
    for (std::size_t i = 1; i <= decoder_block_size(config_.qkv_bias); ++i) {
      const auto& shape = specs[uses[i].parameter].shape;
      const bool matrix = shape.size() == 2;
      if (matrix && recipe_.method == "qlora") {
        const std::int64_t values = c10::multiply_integers(shape);
        request.tensors.push_back({{nf4_code_bytes(values)}, at::kByte, false});
        request.tensors.push_back({{nf4_blocks(values)}, at::kFloat, false});
      } else {
        request.tensors.push_back({shape, uses[i].compute_dtype ? compute_ : plain(), trains});
      }
    }
  }

  const Case& work_;
  const FinetuneRecipe& recipe_;
  DecoderConfig config_;
  at::ScalarType compute_;
};

}  // namespace

std::vector<BlockRequest> finetune_block_requests(const Case& work) {
  std::vector<BlockRequest> requests;
  if (work.execution != "compile") return requests;
  const BlockOf block(work);
  for (const std::int64_t length : work.finetune->length_buckets) {
    requests.push_back(block.request(length));
  }
  return requests;
}

void check_compilable(const Case& work, const DecoderConfig& model) {
  const DecoderConfig known = decoder_config(work.size);
  const auto facts = [](const DecoderConfig& c) {
    return std::tuple(c.width, c.heads, c.key_value_heads, c.head_width, c.hidden, c.qkv_bias,
                      c.norm_epsilon);
  };
  if (facts(known) == facts(model)) return;
  fail(
      "{}: the model's heads, biases or norm epsilon are not those of {}, which is what compiled "
      "rows know; run its eager rows",
      work.name(), work.size);
}

BlockFunction compiled_block_of(const Case& work, const CompiledParts& parts,
                                const TokenLayout& layout, const RotaryTable& rotary) {
  const auto& buckets = work.finetune->length_buckets;
  const auto bucket = std::find(buckets.begin(), buckets.end(), layout.sequence);
  if (bucket == buckets.end() || layout.batch != work.micro_batch || !layout.lengths.empty()) {
    return {};
  }
  const CompiledBlock& compiled = parts.block(static_cast<std::size_t>(bucket - buckets.begin()));
  return [&compiled, layout, rotary](const at::Tensor& x, const BlockWeights& block) {
    std::vector<at::Tensor> tensors{x.view({layout.batch, layout.sequence, x.size(1)})};
    const auto append = [&](const std::vector<at::Tensor>& more) {
      tensors.insert(tensors.end(), more.begin(), more.end());
    };
    if (block.qkv.adapters.a.defined()) append(adapter_tensors(block));
    append(block_tensors(block));
    append({rotary.cosine, rotary.sine});
    return compiled(tensors).view(x.sizes());
  };
}

}  // namespace trainsuite
