#include "finetune.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/text.h"
#include "data/token_file.h"
#include "model/decoder.h"
#include "train/finetune_task.h"

namespace trainsuite {
namespace {

/// A size's synthetic data; `parameters` only weighs the sizes against each other for the ETA.
struct Size {
  const char* name;
  std::int64_t train_examples, held_out;
  double parameters;
};
constexpr Size sizes[] = {
    {"0.5b", 4000, 300, 0.5e9}, {"1.5b", 4000, 300, 1.5e9}, {"tiny", 128, 32, 0.2e6}};

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

/// "64,128,512" as rising lengths.
std::vector<std::int64_t> parsed_buckets(const std::string& text) {
  std::vector<std::int64_t> buckets;
  const auto bad = [&] {
    fail<UsageError>("--length-buckets {}: give rising lengths with commas between, as 128,256,512",
                     quoted(text));
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    const bool more = rest != end && *rest == ',' && rest + 1 != end;
    if (error != std::errc() || (rest != end && !more)) bad();
    if (value < 1 || value > 1048576 || (!buckets.empty() && value <= buckets.back())) bad();
    buckets.push_back(value);
    at = more ? rest + 1 : rest;
  }
  return buckets;
}

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
  const DecoderConfig config = decoder_config(size.name, options.vocabulary.value_or(0));
  one.vocabulary = config.vocabulary;
  one.sequence = 512;
  if (options.data.empty()) return;
  const TrainingData& data = file_data(options.data);
  const auto count = [&](const char* flag, const std::optional<std::int64_t>& asked,
                         std::int64_t there) {
    if (asked.value_or(0) <= there) return asked.value_or(there);
    fail<UsageError>("{} {}: {} has {}", flag, *asked, options.data, there);
  };
  recipe.train_examples = count("--train-examples", options.train_examples, data.train.count());
  recipe.held_out = count("--held-out", options.held_out, data.held_out.count());
  const bool free_vocabulary = !options.vocabulary && std::string(size.name) == "tiny";
  if (free_vocabulary) one.vocabulary = data.vocabulary;
}

/// Only of the cases that will run: a size's vocabulary may be too small for the file.
void check_vocabulary(const Case& work, const TrainingData& data) {
  if (data.vocabulary <= work.vocabulary) return;
  fail("{} has token ids up to {}, {} has a vocabulary of {}; give --vocabulary {} or other data",
       data.source, data.vocabulary - 1, work.name(), work.vocabulary, data.vocabulary);
}

FinetuneRecipe make_recipe(const Method& method, const Options& options) {
  FinetuneRecipe recipe;
  recipe.method = method.name;
  recipe.lora_rank = options.lora_rank;
  recipe.lora_alpha = options.lora_alpha;
  recipe.qlora_upcast = options.qlora_upcast;
  recipe.loss_on = options.loss_on;
  recipe.length_buckets = parsed_buckets(options.length_buckets);
  const bool padded = !recipe.length_buckets.empty();
  if (padded && options.packing == "on") {
    fail<UsageError>("--packing on leaves no padding and --length-buckets asks for it; give one");
  }
  recipe.packing = options.packing == "off" || padded ? "off" : "on";
  return recipe;
}

Case make_case(const Size& size, const Method& method, Batching batching, const Options& options,
               bool cuda, int ranks) {
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
  one.loss_kernel = options.loss_kernel == "reference" ? "reference" : "fused";
  one.block_kernel = "reference";
  one.seed = options.seed;
  one.finetune = make_recipe(method, options);
  take_data(size, options, one);
  one.warmup = options.warmup.value_or(0);
  one.steps = options.steps.value_or(steps_of_one_pass(one.finetune->train_examples, one));
  one.work = size.parameters *
             static_cast<double>((one.steps + one.warmup) * one.micro_batch * one.accumulate);
  return one;
}

}  // namespace

std::vector<Case> finetune_cases(const Options& options, bool cuda, int ranks) {
  std::vector<Case> cases;
  for (const Size& size : sizes) {
    for (const Method& method : methods) {
      for (const Batching& batching : batchings) {
        Case one = make_case(size, method, batching, options, cuda, ranks);
        const bool again = std::any_of(cases.begin(), cases.end(), [&](const Case& other) {
          return other.name() == one.name();
        });
        if (!again) cases.push_back(std::move(one));  // --micro-batch can make two cases one
      }
    }
  }
  return cases;
}

std::vector<std::string> finetune_default_sizes(bool cuda) {
  if (cuda) return {"1.5b"};
  return {"tiny"};
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
