#include "finetune_recipe.h"

#include <charconv>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

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

}  // namespace

FinetuneRecipe finetune_recipe(const std::string& method, const Options& options) {
  FinetuneRecipe recipe;
  recipe.method = method;
  recipe.lora_rank = options.lora_rank;
  recipe.lora_alpha = options.lora_alpha;
  recipe.lora_dropout = method == "full" ? 0 : options.lora_dropout;
  const bool published = options.recipe == "published";
  recipe.nf4_double_quant = options.nf4_double_quant && method == "qlora";
  recipe.qlora_upcast = options.qlora_upcast || options.qlora_wide_outputs || published;
  recipe.checkpointing = options.checkpointing == "on" ? "on" : "off";
  recipe.loss_chunk_mib = published ? 0 : options.loss_chunk_mib;
  recipe.optimizer = options.optimizer != "auto" ? options.optimizer
                     : published                 ? "foreach"
                                                 : "fused";
  recipe.loss_on = options.loss_on;
  recipe.model = options.model;
  recipe.save = options.save;
  recipe.save_merged = options.save_merged;
  recipe.length_buckets = parsed_buckets(options.length_buckets);
  const bool padded = !recipe.length_buckets.empty();
  if (padded && options.packing == "on") {
    fail<UsageError>("--packing on leaves no padding and --length-buckets asks for it; give one");
  }
  const bool packs = options.packing == "on" || (options.packing == "auto" && !published);
  recipe.packing = packs && !padded ? "on" : "off";
  if (options.pack_to && recipe.packing == "off") {
    fail<UsageError>("--pack-to pads packed rows, and these are not packed; give --packing on");
  }
  recipe.pack_to = options.pack_to.value_or(1);
  return recipe;
}

void check_finetune_flags(const Options& options) {
  if (options.save_merged && options.save.empty()) {
    fail<UsageError>("--save-merged says what --save DIR writes; give --save DIR too");
  }
  if (options.lora_dropout >= 1) {
    fail<UsageError>("--lora-dropout {}: nothing would be left; give a probability below 1",
                     options.lora_dropout);
  }
  const bool reference = options.block_kernel == "reference" ||
                         (options.block_kernel == "auto" && options.recipe == "published");
  if (options.qlora_wide_outputs && !reference) {
    fail<UsageError>(
        "--qlora-wide-outputs: the fused blocks have no such outputs; give --block-kernel "
        "reference too");
  }
  if (!options.model.empty() && options.vocabulary) {
    fail<UsageError>("--vocabulary {}: the model in {} has its own; leave --vocabulary out",
                     *options.vocabulary, options.model);
  }
}

}  // namespace trainsuite
