#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "model/attention.h"
#include "model/counter_hash.h"
#include "model/gpt2.h"

namespace trainsuite {
namespace {

std::int64_t elements(const ParameterSpec& spec) {
  std::int64_t product = 1;
  for (const std::int64_t size : spec.shape) product *= size;
  return product;
}

std::int64_t total_elements(const std::string& size, std::int64_t vocabulary) {
  std::int64_t sum = 0;
  for (const ParameterSpec& spec : gpt2_parameters(gpt2_config(size, vocabulary, 1024))) {
    sum += elements(spec);
  }
  return sum;
}

struct Model {
  Gpt2Config config;
  std::vector<at::Tensor> uses;
};

Model tiny_model() {
  Model model{gpt2_config("tiny", 101, 16), {}};
  std::vector<at::Tensor> parameters;
  for (const ParameterSpec& spec : gpt2_parameters(model.config)) {
    at::Tensor values = at::full(spec.shape, spec.init_constant, at::kFloat);
    const auto index = static_cast<std::int64_t>(parameters.size());
    if (spec.init_std > 0) fill_initial_parameter_(values, 1, index, spec.init_std);
    parameters.push_back(values.requires_grad_());
  }
  for (const ParameterUse& use : gpt2_uses(model.config)) {
    model.uses.push_back(parameters[use.parameter]);
  }
  return model;
}

at::Tensor tiny_tokens(std::int64_t examples) {
  return random_tokens(3, 0, 0, examples, 17, 101, at::Device(at::kCPU));
}

float loss_of(const Model& model, const at::Tensor& tokens, bool fused_blocks) {
  const c10::NoGradGuard no_grad;
  return gpt2_loss(model.config, model.uses, tokens, 1, true, false, fused_blocks).item<float>();
}

TEST(Gpt2, HasThePublishedNumbersOfParameters) {
  EXPECT_EQ(total_elements("124m", 50257), 124439808);  // Hugging Face's openai-community/gpt2
  EXPECT_EQ(total_elements("355m", 50257), 354823168);  // and gpt2-medium
}

TEST(Gpt2, UsesEveryParameterOnceAndTheEmbeddingTwice) {
  const Gpt2Config config = gpt2_config("124m", 50304, 1024);
  const std::vector<ParameterSpec> parameters = gpt2_parameters(config);
  std::map<std::size_t, int> count;
  for (const ParameterUse& use : gpt2_uses(config)) {
    ++count[use.parameter];
    const std::string& name = parameters[use.parameter].name;
    const bool norm_or_position = name.find("ln_") != std::string::npos || name == "wpe.weight";
    if (use.parameter == 0) continue;
    EXPECT_EQ(use.compute_dtype, !norm_or_position) << name;
  }
  EXPECT_EQ(count.size(), parameters.size());
  for (const auto& [parameter, uses] : count) EXPECT_EQ(uses, parameter == 0 ? 2 : 1);
  EXPECT_EQ(parameters[0].name, "wte.weight");
  EXPECT_TRUE(gpt2_uses(config).back().compute_dtype);
  EXPECT_FALSE(gpt2_uses(config).front().compute_dtype);
}

TEST(Gpt2, NamesAreUniqueAndResidualLayersStartSmaller) {
  const std::vector<ParameterSpec> parameters = gpt2_parameters(gpt2_config("124m", 50304, 1024));
  std::set<std::string> names;
  for (const ParameterSpec& spec : parameters) {
    names.insert(spec.name);
    if (!spec.name.ends_with("c_proj.weight")) continue;
    EXPECT_DOUBLE_EQ(spec.init_std, 0.02 / std::sqrt(24.0));
  }
  EXPECT_EQ(names.size(), parameters.size());
}

TEST(Gpt2, RefusesUnknownSizesAndWrongLists) {
  EXPECT_THROW(gpt2_config("999m", 50304, 1024), Error);
  EXPECT_THROW(gpt2_config("124m", 0, 1024), Error);
  EXPECT_THROW(gpt2_config("124m", 50304, 0), Error);
  Model model = tiny_model();
  EXPECT_THROW(loss_of(model, tiny_tokens(1).narrow(1, 0, 1), false), Error);
  model.uses.pop_back();
  EXPECT_THROW(loss_of(model, tiny_tokens(1), false), Error);
}

TEST(Gpt2, AnUntrainedModelKnowsNothing) {
  const Model model = tiny_model();
  EXPECT_NEAR(loss_of(model, tiny_tokens(8), false) / (8 * 16), std::log(101.0), 0.05);
}

TEST(Gpt2, FusedBlocksGiveTheSameLoss) {
  const Model model = tiny_model();
  const float plain = loss_of(model, tiny_tokens(4), false);
  EXPECT_NEAR(loss_of(model, tiny_tokens(4), true), plain, 1e-5 * plain);
}

TEST(Gpt2, ExamplesAreIndependentAndTheLossAddsUp) {
  const Model model = tiny_model();
  const at::Tensor tokens = tiny_tokens(4);
  float sum = 0;
  for (std::int64_t i = 0; i < 4; ++i) sum += loss_of(model, tokens.narrow(0, i, 1), true);
  EXPECT_NEAR(loss_of(model, tokens, true), sum, 1e-5 * sum);
}

TEST(Gpt2, AttentionLooksBackOnly) {
  const Model model = tiny_model();
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::randn({1, 10, 64});
  at::Tensor changed = x.clone();
  changed.select(1, 6).neg_();
  const at::TensorList p = at::TensorList(model.uses).slice(2, 12);
  for (const bool fused : {false, true}) {
    const at::Tensor moved = (gpt2_block(changed, p, 4, fused) - gpt2_block(x, p, 4, fused)).abs();
    EXPECT_LT(moved.narrow(1, 0, 6).max().item<float>(), 1e-6);
    EXPECT_GT(moved.narrow(1, 7, 3).max().item<float>(), 1e-4);
  }
}

TEST(Attention, OnACpuTheDefaultIsKept) {
  EXPECT_EQ(fastest_attention(at::Device(at::kCPU), at::kFloat, 1, 4, 2, 16, 16), "default");
  EXPECT_EQ(attention_candidates(false), std::vector<std::string>{"default"});
  EXPECT_THROW(attention_kernel("fastest"), Error);
}

TEST(Attention, ExactlyTheNamedKernelIsEnabled) {
  const auto enabled = [] {
    const at::Context& context = at::globalContext();
    return std::vector<bool>{context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(),
                             context.userEnabledMemEfficientSDP(), context.userEnabledMathSDP()};
  };
  using Flags = std::vector<bool>;
  use_attention(attention_kernel("cudnn"));
  EXPECT_EQ(enabled(), (Flags{true, false, false, false}));
  use_attention(attention_kernel("flash"));
  EXPECT_EQ(enabled(), (Flags{false, true, false, false}));
  use_attention(attention_kernel("efficient"));
  EXPECT_EQ(enabled(), (Flags{false, false, true, false}));
  use_attention(attention_kernel("math"));
  EXPECT_EQ(enabled(), (Flags{false, false, false, true}));
  use_attention(attention_kernel("default"));
  EXPECT_EQ(enabled(), (Flags{true, true, true, true}));
}

}  // namespace
}  // namespace trainsuite
