#include "finetune.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "data/token_file.h"
#include "finetune_recipe.h"
#include "model/decoder.h"
#include "train/finetune_task.h"
#include "weights/model_folder.h"

namespace trainsuite {
namespace {

/// A size's synthetic data; `parameters` only weighs the sizes against each other for the ETA.
struct Size {
  const char* name;
  std::int64_t train_examples, held_out;
  double parameters;
};
constexpr Size sizes[] = {
    {"0.5b", 4000, 300, 0.5e9}, {"1.5b", 4000, 300, 1.5e9}, {"tiny", 64, 16, 0.2e6}};

constexpr Size model_size = {"model", 4000, 300, 1e9};  // of a folder that is no known size

const ModelFolder& model_folder(const std::string& path) {
  static std::map<std::string, ModelFolder> opened;
  if (const auto known = opened.find(path); known != opened.end()) return known->second;
  return opened.emplace(path, ModelFolder(path)).first->second;
}

/// The known size whose model the folder holds, else "model".
Size size_of(const DecoderConfig& folder) {
  for (const Size& size : sizes) {
    const DecoderConfig known = decoder_config(size.name);
    if (std::tie(known.layers, known.width, known.heads, known.hidden, known.vocabulary) ==
        std::tie(folder.layers, folder.width, folder.heads, folder.hidden, folder.vocabulary)) {
      return size;
    }
  }
  return model_size;
}

std::vector<Size> sizes_for(const Options& options) {
  if (options.model.empty()) return {std::begin(sizes), std::end(sizes)};
  return {size_of(model_folder(options.model).config())};
}

struct Method {
  const char* name;
  double learning_rate;
  const char* what;
};
constexpr Method methods[] = {{"full", 1e-5, "all parameters, fp32 over bf16 products"},
                              {"lora", 2e-4, "adapters of rank {} on a frozen base"},
                              {"qlora", 2e-4, "adapters of rank {} on a 4-bit NF4 base"}};

struct Batching {
  std::int64_t micro_batch, accumulate;
};
constexpr Batching batchings[] = {{4, 4}, {8, 2}};

using DataKey = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

TrainingData limited(TrainingData data, std::int64_t train_examples, std::int64_t held_out) {
  data.train = data.train.first(train_examples);
  data.held_out = data.held_out.first(held_out);
  return data;
}

const TrainingData& file_data(const std::string& path) {
  static std::map<std::string, TrainingData> read;
  if (const auto known = read.find(path); known != read.end()) return known->second;
  return read.emplace(path, read_token_file(path)).first->second;
}

void take_data(const Size& size, const Options& options, Case& one) {
  FinetuneRecipe& recipe = *one.finetune;
  recipe.data = options.data;
  recipe.train_examples = options.train_examples.value_or(size.train_examples);
  recipe.held_out = options.held_out.value_or(size.held_out);
  one.vocabulary = recipe.model.empty()
                       ? decoder_config(size.name, options.vocabulary.value_or(0)).vocabulary
                       : model_folder(recipe.model).config().vocabulary;
  one.sequence = 512;
  if (options.data.empty()) return;
  const TrainingData& data = file_data(options.data);
  const bool dry = recipe.model.empty() && std::string(size.name) == "tiny";
  const auto count = [&](const char* flag, const std::optional<std::int64_t>& asked,
                         std::int64_t there, std::int64_t dry_count) {
    if (asked.value_or(0) > there) {
      fail<UsageError>("{} {}: {} has {}", flag, *asked, options.data, there);
    }
    return asked.value_or(dry ? std::min(there, dry_count) : there);
  };
  recipe.train_examples =
      count("--train-examples", options.train_examples, data.train.count(), size.train_examples);
  recipe.held_out = count("--held-out", options.held_out, data.held_out.count(), size.held_out);
  if (dry && !options.vocabulary) one.vocabulary = data.vocabulary;
}

/// Only of the cases that will run: a size's vocabulary may be too small for the file.
void check_vocabulary(const Case& work, const TrainingData& data) {
  if (data.vocabulary <= work.vocabulary) return;
  fail("{} has token ids up to {}, {} has a vocabulary of {}; give --vocabulary {} or other data",
       data.source, data.vocabulary - 1, work.name(), work.vocabulary, data.vocabulary);
}

const std::vector<std::int64_t> default_buckets{128, 256, 384, 512};

/// Graphs have fixed shapes: packed rows are padded a little, others as compiled ones.
void graph_case(Case& one, const Options& options) {
  one.execution = "graph";
  one.on_request = true;
  one.recipe += "-graph";
  one.what += ", micro-batches in CUDA graphs";
  FinetuneRecipe& recipe = *one.finetune;
  // Where attention takes packed examples one by one, their lengths are part of the work.
  const bool one_kernel = one.precision == "bf16" && one.attention != "naive";
  if (recipe.packing == "on" && one_kernel) {
    constexpr std::int64_t tokens_an_example = 32;
    recipe.pack_to = options.pack_to.value_or(tokens_an_example * one.micro_batch);
  } else {
    if (options.packing == "on") {
      one.skip = "attention takes packed examples one by one here, and a graph holds their lengths";
    }
    recipe.packing = "off";
    recipe.pack_to = 1;
    if (recipe.length_buckets.empty()) recipe.length_buckets = default_buckets;
  }
}

/// Compiled blocks have fixed shapes: examples are padded, to some few lengths.
void compile_case(Case& one, const Options& options) {
  one.execution = "compile";
  one.on_request = true;
  one.recipe += "-compile";
  one.what += ", compiled";
  FinetuneRecipe& recipe = *one.finetune;
  recipe.packing = "off";
  recipe.qlora_wide_outputs = false;
  if (recipe.length_buckets.empty()) recipe.length_buckets = default_buckets;
  if (recipe.lora_dropout > 0) {
    one.skip = "compiled blocks have no dropout; --lora-dropout is for eager and graph rows";
  } else if (recipe.nf4_double_quant) {
    one.skip = "compiled blocks know fp32 maxima; --nf4-double-quant is for eager and graph rows";
  } else if (options.qlora_wide_outputs && recipe.method == "qlora") {
    one.skip = "--qlora-wide-outputs is for eager and graph rows";
  } else if (recipe.checkpointing == "on") {
    one.skip = "compiled blocks keep what the compiler chose; --checkpointing is for eager rows";
  } else if (options.packing == "on") {
    one.skip = "compiled blocks have fixed shapes, packed micro-batches have not";
  } else if (one.size == model_size.name) {
    one.skip = "only models of the known sizes are compiled";
  }
}

Case make_case(const Size& size, const Method& method, Batching batching,
               const std::string& execution, const Options& options, bool cuda, int ranks) {
  Case one;
  one.suite = "finetune";
  one.size = size.name;
  one.ranks = ranks;
  one.communicates = ranks > 1;
  one.micro_batch = options.micro_batch.value_or(batching.micro_batch);
  one.accumulate = options.accumulate.value_or(batching.accumulate);
  one.recipe = fmt::format("{}-{}x{}", method.name, one.micro_batch, one.accumulate);
  one.what = fmt::format(fmt::runtime(method.what), options.lora_rank);
  one.learning_rate = options.learning_rate.value_or(method.learning_rate);
  one.precision = options.precision == "auto" ? (cuda ? "bf16" : "fp32") : options.precision;
  one.attention = options.attention;
  if (one.attention == "auto") {
    one.attention = cuda && one.precision == "bf16" ? "flash" : "default";
  }
  const bool published = options.recipe == "published";
  one.loss_kernel = options.loss_kernel != "auto" ? options.loss_kernel
                    : published                   ? "reference"
                                                  : "fused";
  one.block_kernel = options.block_kernel != "auto" ? options.block_kernel
                     : published                    ? "reference"
                                                    : "fused";
  one.seed = options.seed;
  one.vary_seed = true;  // losses of repeats tell how far a seed alone moves them
  one.finetune = finetune_recipe(method.name, options);
  one.finetune->qlora_wide_outputs = method.name == std::string("qlora") &&
                                     one.block_kernel == "reference" &&
                                     (options.qlora_wide_outputs || published);
  take_data(size, options, one);
  if (execution == "compile") compile_case(one, options);
  if (execution == "graph") graph_case(one, options);
  one.warmup = options.warmup.value_or(0);
  one.steps = options.steps.value_or(steps_of_one_pass(one.finetune->train_examples, one));
  one.work = size.parameters *
             static_cast<double>((one.steps + one.warmup) * one.micro_batch * one.accumulate);
  return one;
}

}  // namespace

std::vector<Case> finetune_cases(const Options& options, bool cuda, int ranks) {
  std::vector<Case> cases;
  check_finetune_flags(options);
  const auto add = [&](Case one) {
    const bool again = std::any_of(cases.begin(), cases.end(),
                                   [&](const Case& other) { return other.name() == one.name(); });
    if (!again) cases.push_back(std::move(one));  // --micro-batch can make two cases one
  };
  for (const Size& size : sizes_for(options)) {
    for (const char* execution : {"eager", "compile", "graph"}) {
      for (const Method& method : methods) {
        for (const Batching& batching : batchings) {
          add(make_case(size, method, batching, execution, options, cuda, ranks));
        }
      }
    }
  }
  return cases;
}

std::vector<std::string> finetune_default_sizes(const Options& options, bool cuda) {
  if (!options.model.empty()) return {sizes_for(options).front().name};
  if (cuda) return {"1.5b"};
  return {"tiny"};
}

DecoderConfig case_model(const Case& work) {
  const std::string& folder = work.finetune->model;
  return folder.empty() ? decoder_config(work.size, work.vocabulary)
                        : model_folder(folder).config();
}

WeightSource case_weights(const Case& work, at::Device device) {
  const std::string& folder = work.finetune->model;
  if (folder.empty()) return random_weights(work.seed, device);
  return [folder](std::size_t, const ParameterSpec& spec) {
    return model_folder(folder).parameter(spec);
  };
}

const TrainingData& training_data(const Case& work) {
  static std::map<DataKey, TrainingData> made;
  const FinetuneRecipe& recipe = *work.finetune;
  const DataKey key{recipe.data, work.seed, recipe.train_examples, recipe.held_out,
                    work.vocabulary};
  auto known = made.find(key);
  if (known == made.end()) {
    auto data =
        recipe.data.empty()
            ? synthetic_data(work.seed, recipe.train_examples, recipe.held_out, work.vocabulary)
            : limited(file_data(recipe.data), recipe.train_examples, recipe.held_out);
    known = made.emplace(key, std::move(data)).first;
  }
  check_vocabulary(work, known->second);
  return known->second;
}

}  // namespace trainsuite
