// Sizes, parameter names, shapes and initial values of the decoder.
#include "core/error.h"
#include "model/decoder.h"

namespace trainsuite {
namespace {

constexpr double kInitialStd = 0.02;  // transformers' initializer_range for both families

// name, layers, width, heads, key-value heads, head width, hidden, vocabulary, biases, tied,
// rotary base, epsilon
const DecoderConfig kSizes[] = {
    {"tiny", 2, 64, 4, 2, 16, 192, 512, true, true, 1e6, 1e-6},
    {"0.5b", 24, 896, 14, 2, 64, 4864, 151936, true, true, 1e6, 1e-6},
    {"1.5b", 28, 1536, 12, 2, 128, 8960, 151936, true, true, 1e6, 1e-6},
    {"468m", 24, 1024, 16, 16, 64, 4096, 32000, false, false, 1e4, 1e-6},
};

bool is_norm(const std::string& name) { return name.find("norm") != std::string::npos; }

}  // namespace

std::vector<std::string> decoder_sizes() {
  std::vector<std::string> names;
  for (const DecoderConfig& size : kSizes) names.push_back(size.name);
  return names;
}

DecoderConfig decoder_config(const std::string& size, std::int64_t vocabulary) {
  if (vocabulary < 0) fail("vocabulary {} of decoder {}: give at least 1", vocabulary, size);
  for (DecoderConfig config : kSizes) {
    if (size != config.name) continue;
    if (vocabulary > 0) config.vocabulary = vocabulary;
    return config;
  }
  std::string names;
  for (const std::string& name : decoder_sizes()) names += (names.empty() ? "" : ", ") + name;
  fail("unknown decoder size '{}': choose one of {}", size, names);
}

std::vector<ParameterSpec> decoder_parameters(const DecoderConfig& config) {
  std::vector<ParameterSpec> list;
  const auto norm = [&](const std::string& name) {
    list.push_back({name + ".weight", {config.width}, 0, 1});
  };
  const auto matrix = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    list.push_back({name + ".weight", {out, in}, kInitialStd, 0});
  };
  matrix("embed_tokens", config.vocabulary, config.width);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = fmt::format("layers.{}.", layer);
    norm(block + "input_layernorm");
    matrix(block + "self_attn.qkv_proj", config.qkv_rows(), config.width);
    if (config.qkv_bias) list.push_back({block + "self_attn.qkv_proj.bias", {config.qkv_rows()}});
    matrix(block + "self_attn.o_proj", config.width, config.heads * config.head_width);
    norm(block + "post_attention_layernorm");
    matrix(block + "mlp.gate_up_proj", 2 * config.hidden, config.width);
    matrix(block + "mlp.down_proj", config.width, config.hidden);
  }
  norm("norm");
  if (!config.tied) matrix("lm_head", config.vocabulary, config.width);
  return list;
}

std::vector<ParameterUse> decoder_uses(const DecoderConfig& config) {
  const std::vector<ParameterSpec> parameters = decoder_parameters(config);
  std::vector<ParameterUse> uses;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    uses.push_back({i, i > 0 && !is_norm(parameters[i].name)});
  }
  if (config.tied) uses.push_back({0, true});
  return uses;
}

std::int64_t decoder_parameter_count(const DecoderConfig& config) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : decoder_parameters(config)) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : spec.shape) elements *= extent;
    count += elements;
  }
  return count;
}

}  // namespace trainsuite
