#include "ddp.h"

#include <fmt/format.h>

namespace trainsuite {
namespace {

/// A size's defaults; `parameters` only weighs the sizes against each other for the ETA.
struct Size {
  const char* name;
  std::int64_t micro_batch, sequence, vocabulary;
  double parameters;
};
constexpr Size sizes[] = {
    {"124m", 8, 1024, 50304, 124e6},
    {"355m", 8, 1024, 50304, 355e6},
    {"tiny", 2, 64, 512, 0.2e6},
};

struct Recipe {
  const char* name;  // "...accumulate" gets the count appended
  bool one_rank, communicates, accumulates;
  const char* wire;
  const char* what;
};
constexpr Recipe recipes[] = {
    {"1gpu", true, false, false, "fp32", "rank 0 alone, no communication"},
    {"1gpu-accumulate", true, false, true, "fp32",
     "rank 0 alone, accumulates {}, no communication"},
    {"independent", false, false, false, "fp32", "every rank by itself, no communication"},
    {"plain", false, true, false, "fp32", "fp32 gradients summed over the ranks"},
    {"bf16", false, true, false, "bf16", "bf16 gradients summed over the ranks"},
    {"accumulate", false, true, true, "fp32", "accumulates {}, fp32 gradients summed once a step"},
    {"both", false, true, true, "bf16", "accumulates {}, bf16 gradients summed once a step"},
};

/// "both" keeps its name: its count is in the settings.
std::string recipe_name(const Recipe& recipe, std::int64_t accumulate) {
  const std::string name = recipe.name;
  return name.ends_with("accumulate") ? fmt::format("{}{}", name, accumulate) : name;
}

Case make_case(const Size& size, const Recipe& recipe, const std::string& execution,
               const Options& options, bool cuda, int ranks) {
  Case one;
  one.execution = execution;
  one.on_request = execution != "eager";
  one.suite = "ddp";
  one.size = size.name;
  one.one_rank = recipe.one_rank;
  one.ranks = recipe.one_rank ? 1 : ranks;
  one.communicates = recipe.communicates;
  one.wire = recipe.wire;
  one.micro_batch = options.micro_batch.value_or(size.micro_batch);
  one.accumulate = recipe.accumulates ? options.accumulate.value_or(4) : 1;
  one.sequence = options.sequence.value_or(size.sequence);
  one.vocabulary = options.vocabulary.value_or(size.vocabulary);
  one.steps = options.steps.value_or(one.steps);
  one.warmup = options.warmup.value_or(one.warmup);
  one.learning_rate = options.learning_rate.value_or(one.learning_rate);
  one.precision = options.precision == "auto" ? (cuda ? "bf16" : "fp32") : options.precision;
  one.attention = options.attention;
  one.loss_kernel = options.loss_kernel;
  one.block_kernel = options.block_kernel;
  one.seed = options.seed;
  one.recipe = recipe_name(recipe, one.accumulate);
  one.what = fmt::format(fmt::runtime(recipe.what), one.accumulate);
  if (execution != "eager") {
    one.recipe += "-" + execution;
    one.what += execution == "graph" ? ", compiled, in a CUDA graph" : ", compiled";
  }
  const auto rank_tokens = static_cast<double>(one.micro_batch * one.accumulate * one.sequence);
  one.work = size.parameters * rank_tokens * static_cast<double>(one.steps + one.warmup);
  return one;
}

}  // namespace

std::vector<Case> ddp_cases(const Options& options, bool cuda, int ranks) {
  std::vector<Case> cases;
  for (const Size& size : sizes) {
    for (const char* execution : {"eager", "compile", "graph"}) {
      for (const Recipe& recipe : recipes) {
        cases.push_back(make_case(size, recipe, execution, options, cuda, ranks));
      }
    }
  }
  return cases;
}

std::vector<std::string> ddp_default_sizes(const Options&, bool cuda) {
  if (cuda) return {"124m", "355m"};
  return {"tiny"};
}

}  // namespace trainsuite
