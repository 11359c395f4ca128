// What a step of fine-tuning takes: operations of tokens that are no padding, and bytes.
#include "decoder_account.h"
#include "finetune.h"

namespace trainsuite {
namespace {

/// Of the examples of all steps.
struct Lengths {
  double tokens = 0, squares = 0, steps = 0;
};

/// Steps take the examples in order, pass after pass; a pass's last step takes what is left.
Lengths lengths_of(const Case& work) {
  Lengths all;
  all.steps = static_cast<double>(work.warmup + work.steps);
  const Examples& examples = training_data(work).train;
  const std::int64_t per_step = work.micro_batch * work.accumulate * work.ranks;
  const std::int64_t per_pass = (examples.count() + per_step - 1) / per_step;
  if (per_pass == 0) return all;
  const auto passes = (work.warmup + work.steps) / per_pass;
  const auto more = (work.warmup + work.steps) % per_pass * per_step;
  for (std::int64_t i = 0; i < examples.count(); ++i) {
    const auto times = static_cast<double>(passes + (i < more ? 1 : 0));
    const auto length = static_cast<double>(examples.length(i));
    all.tokens += times * length;
    all.squares += times * length * length;
  }
  return all;
}

/// Below the first block's adapters nothing trains: its q, k, v need no gradient of their input.
ProductParameters products_of(const DecoderConfig& model, const FinetuneRecipe& recipe) {
  const auto matrices = static_cast<double>(decoder_matmul_parameters(model));
  if (recipe.method == "full") return {.trained = matrices};
  const auto adapters = static_cast<double>(adapter_count(model, recipe.lora_rank));
  const auto first = model.width * (model.qkv_rows() + 3 * recipe.lora_rank);
  return {adapters, matrices, static_cast<double>(first)};
}

/// One rank's. Products read 4-bit matrices as they are stored.
StepTraffic traffic(const Case& work, const DecoderConfig& model, const FinetuneMemory& memory,
                    double tokens) {
  const DecoderKeeping keeping = finetune_keeping(work);
  const auto kept = decoder_kept_bytes(model, keeping) + keeping.element_bytes * model.vocabulary;
  return {.micro_batches = work.accumulate,
          .weight_bytes = static_cast<double>(memory.read_weights),
          .activation_bytes = tokens / work.ranks * static_cast<double>(kept),
          .trained = static_cast<double>(memory.trained),
          .copy_width = work.precision == "bf16" ? 2.0 : 0};
}

}  // namespace

StepAccount finetune_account(const Case& work) {
  const DecoderConfig model = case_model(work);
  const ProductParameters products = products_of(model, *work.finetune);
  const Lengths lengths = lengths_of(work);
  StepAccount account;
  if (lengths.tokens > 0) {
    account.tokens = lengths.tokens / lengths.steps;
    // Attention stays within examples: each token's share goes with its own example's length.
    const double sequence = lengths.squares / lengths.tokens;
    const auto flops = [&](bool halved) {
      return *account.tokens * decoder_flops_per_token(model, products, sequence, halved);
    };
    account.flops = flops(true);
    account.flops_uncausal = flops(false);
  }
  const FinetuneMemory memory = finetune_memory(work);
  account.least_bytes = least_step_bytes(traffic(work, model, memory, account.tokens.value_or(0)));
  account.weight_bytes = memory.weights;
  account.gradient_bytes = memory.gradients;
  account.optimizer_bytes = memory.optimizer;
  account.activation_bytes = memory.activations;
  return account;
}

}  // namespace trainsuite
