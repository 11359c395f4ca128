// Sizes, parameter names, shapes and initial values of GPT-2.
#include <cmath>

#include "core/error.h"
#include "model/gpt2.h"

namespace trainsuite {
namespace {

struct Size {
  const char* name;
  std::int64_t layers, width, heads;
};
constexpr Size kSizes[] = {{"tiny", 2, 64, 4}, {"124m", 12, 768, 12}, {"355m", 24, 1024, 16}};

void add_norm(std::vector<ParameterSpec>& list, const std::string& name, std::int64_t width) {
  list.push_back({name + ".weight", {width}, 0, 1});
  list.push_back({name + ".bias", {width}, 0, 0});
}

void add_linear(std::vector<ParameterSpec>& list, const std::string& name, std::int64_t in,
                std::int64_t out, double std) {
  list.push_back({name + ".weight", {out, in}, std, 0});
  list.push_back({name + ".bias", {out}, 0, 0});
}

bool is_norm(const std::string& name) { return name.find("ln_") != std::string::npos; }

}  // namespace

std::vector<std::string> gpt2_sizes() {
  std::vector<std::string> names;
  for (const Size& size : kSizes) names.emplace_back(size.name);
  return names;
}

Gpt2Config gpt2_config(const std::string& size, std::int64_t vocabulary, std::int64_t positions) {
  if (vocabulary < 1) fail("vocabulary {} of GPT-2 {}: give at least 1", vocabulary, size);
  if (positions < 1) fail("positions {} of GPT-2 {}: give at least 1", positions, size);
  for (const Size& known : kSizes) {
    if (size == known.name) {
      return {size, known.layers, known.width, known.heads, vocabulary, positions};
    }
  }
  std::string names;
  for (const std::string& name : gpt2_sizes()) names += (names.empty() ? "" : ", ") + name;
  fail("unknown GPT-2 size '{}': choose one of {}", size, names);
}

std::vector<ParameterSpec> gpt2_parameters(const Gpt2Config& config) {
  // GPT-2's scheme: 0.02, and layers that end on the residual stream scaled by their number.
  const double std = 0.02;
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(config.layers));
  const std::int64_t width = config.width;
  std::vector<ParameterSpec> list;
  list.push_back({"wte.weight", {config.vocabulary, width}, std, 0});
  list.push_back({"wpe.weight", {config.positions, width}, std, 0});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = fmt::format("h.{}.", layer);
    add_norm(list, block + "ln_1", width);
    add_linear(list, block + "attn.c_attn", width, 3 * width, std);
    add_linear(list, block + "attn.c_proj", width, width, residual_std);
    add_norm(list, block + "ln_2", width);
    add_linear(list, block + "mlp.c_fc", width, 4 * width, std);
    add_linear(list, block + "mlp.c_proj", 4 * width, width, residual_std);
  }
  add_norm(list, "ln_f", width);
  return list;
}

std::vector<ParameterUse> gpt2_uses(const Gpt2Config& config) {
  const std::vector<ParameterSpec> parameters = gpt2_parameters(config);
  std::vector<ParameterUse> uses;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool embedding = i < 2;
    uses.push_back({i, !embedding && !is_norm(parameters[i].name)});
  }
  uses.push_back({0, true});  // the head: the token embedding again
  return uses;
}

}  // namespace trainsuite
