#include "train/finetune_saving.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "weights/model_names.h"
#include "weights/safetensors.h"
#include "weights/saved_model.h"

namespace trainsuite {
namespace {

/// Adds the parts of a joint parameter under transformers' names, on the CPU.
void add_parts(NamedTensors& state, const DecoderConfig& config, const ParameterSpec& spec,
               const at::Tensor& value) {
  std::int64_t first = 0;
  const at::Tensor host = value.detach().cpu();
  for (const StoredPart& part : stored_parts(config, spec)) {
    state.emplace_back(part.name, host.narrow(0, first, part.rows));
    first += part.rows;
  }
}

/// The base's matrix with what its adapters add.
at::Tensor merged(const Linear& linear, std::int64_t rank) {
  const at::ScalarType dtype = input_dtype(linear);
  at::Tensor sum = linear.weight.defined()
                       ? linear.weight.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true)
                       : nf4_dequantize(linear.quantized, linear.shape, at::kFloat);
  const at::Tensor a = linear.adapters.a.to(at::kFloat), b = linear.adapters.b.to(at::kFloat);
  std::int64_t first = 0, part = 0;
  for (const std::int64_t rows : linear.adapters.rows) {
    sum.narrow(0, first, rows)
        .addmm_(b.narrow(0, first, rows), a.narrow(0, part * rank, rank), 1, linear.adapters.scale);
    first += rows, ++part;
  }
  return sum.to(dtype);
}

NamedTensors merged_state(const FinetuneModel& model) {
  const DecoderConfig& config = model.config();
  const DecoderWeights& weights = model.weights();
  std::vector<at::Tensor> values{weights.embedding};
  for (const BlockWeights& block : weights.blocks) {
    const auto add = [&](const Linear& linear) {
      values.push_back(merged(linear, model.recipe().lora_rank));
      if (linear.bias.defined()) values.push_back(linear.bias);
    };
    values.push_back(block.attention_norm);
    add(block.qkv);
    add(block.output);
    values.push_back(block.mlp_norm);
    add(block.gate_up);
    add(block.down);
  }
  values.push_back(weights.norm);
  if (!config.tied) values.push_back(weights.head);
  const auto specs = decoder_parameters(config);
  NamedTensors state;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    add_parts(state, config, specs[i], values[i].to(input_dtype(weights.blocks[0].qkv)));
  }
  return state;
}

NamedTensors full_state(const FinetuneModel& model) {
  const auto specs = decoder_parameters(model.config());
  NamedTensors state;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    add_parts(state, model.config(), specs[i], model.trainable().parameters()[i]);
  }
  return state;
}

/// Adapters in peft's names: of "layers.0.self_attn.qkv_proj.lora_a" the rows of each layer in it.
NamedTensors adapter_state(const FinetuneModel& model) {
  const auto specs = adapter_parameters(model.config(), model.recipe().lora_rank);
  NamedTensors state;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::string& name = specs[i].name;
    const bool is_a = name.ends_with(".lora_a");
    const std::string joint = name.substr(0, name.size() - std::string(".lora_a").size());
    const at::Tensor host = model.trainable().parameters()[i].detach().cpu();
    std::int64_t first = 0;
    // The parts' names and rows are those of the matrix that is adapted.
    for (const StoredPart& part : stored_parts(model.config(), {joint, {host.size(0)}})) {
      const std::int64_t rows = is_a ? model.recipe().lora_rank : part.rows;
      state.emplace_back(
          "base_model.model." + part.name + (is_a ? ".lora_A" : ".lora_B") + ".weight",
          host.narrow(0, first, rows));
      first += rows;
    }
  }
  return state;
}

std::string dtype_text(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? "bfloat16" : "float32";
}

}  // namespace

void save_model(const FinetuneModel& model, const std::string& name) {
  const c10::NoGradGuard no_grad;
  const FinetuneRecipe& recipe = model.recipe();
  const bool adapters = recipe.method != "full" && !recipe.save_merged;
  const NamedTensors state = adapters                  ? adapter_state(model)
                             : recipe.method == "full" ? full_state(model)
                                                       : merged_state(model);
  write_folder(recipe.save + "/" + name, [&](const std::string& folder) {
    if (adapters) {
      write_text(folder + "/adapter_config.json",
                 adapter_config_json(recipe.lora_rank, recipe.lora_alpha, recipe.lora_dropout,
                                     recipe.model));
      write_safetensors(folder + "/adapter_model.safetensors", state);
      return;
    }
    write_text(folder + "/config.json",
               model_config_json(model.config(), dtype_text(state.front().second)));
    write_safetensors(folder + "/model.safetensors", state);
  });
}

}  // namespace trainsuite
