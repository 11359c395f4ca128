// What a step of GPT-2 takes: operations, bytes held, bytes moved.
#include "ddp.h"
#include "model/gpt2.h"
#include "result/statistics.h"

namespace trainsuite {
namespace {

std::int64_t parameter_count(const Gpt2Config& model) {
  std::int64_t parameters = 0;
  for (const auto& spec : gpt2_parameters(model)) {
    std::int64_t elements = 1;
    for (const auto extent : spec.shape) elements *= extent;
    parameters += elements;
  }
  return parameters;
}

/// Matrix parameters, head included, input embeddings excluded: layers x 12 width^2 + V width.
double matmul_parameters(const Gpt2Config& model) {
  const auto width = static_cast<double>(model.width);
  return static_cast<double>(model.layers) * 12 * width * width +
         static_cast<double>(model.vocabulary) * width;
}

/// What a micro-batch keeps for backward with our fused kernels; `e` bytes an element of the
/// compute dtype.
std::int64_t activation_bytes(const Case& work, const Gpt2Config& model, std::int64_t e) {
  // A block, a token: two residual sums (fp32), two norms, q, k, v, attention, and the MLP before
  // and after GELU.
  const auto block = (2 * 4 + 2 * e + 3 * e + e + 4 * e + 4 * e) * model.width;
  const auto ends = (4 + 4 + 2 * e) * model.width + e * model.vocabulary;  // embedding to logits
  return work.micro_batch * work.sequence * (model.layers * block + ends);
}

/// While all activations live: the head's gradient (bf16), first to come, and what holds gradients.
std::int64_t gradient_bytes(const Case& work, const Gpt2Config& model, std::int64_t parameters) {
  const auto head = model.vocabulary * model.width;
  if (work.communicates) {
    return 2 * head + (work.wire == "bf16" ? 6 : 4) * parameters;  // buckets
  }
  return 2 * head + (work.accumulate > 1 ? 4 * parameters : 4 * head);
}

StepTraffic traffic(const Case& work, std::int64_t parameters, std::int64_t activations) {
  const auto count = static_cast<double>(parameters);
  const bool copies = work.precision == "bf16";
  return {.micro_batches = work.accumulate,
          .weight_bytes = (copies ? 2 : 4) * count,
          .activation_bytes = static_cast<double>(work.accumulate * activations),
          .trained = count,
          .copy_width = copies ? 2.0 : 0};
}

}  // namespace

StepAccount ddp_account(const Case& work) {
  const auto model = gpt2_config(work.size, work.vocabulary, work.sequence);
  const auto parameters = parameter_count(model);
  const auto flops = [&](bool halved) {
    return flops_per_token(matmul_parameters(model), static_cast<double>(model.layers),
                           static_cast<double>(model.width), static_cast<double>(work.sequence),
                           halved) *
           static_cast<double>(work.tokens_per_step());
  };
  StepAccount account;
  account.flops = flops(true);
  account.flops_uncausal = flops(false);
  account.weight_bytes = (work.precision == "bf16" ? 4 + 2 : 4) * parameters;
  account.optimizer_bytes = 8 * parameters;
  account.gradient_bytes = gradient_bytes(work, model, parameters);
  const auto activations = activation_bytes(work, model, work.precision == "bf16" ? 2 : 4);
  account.least_bytes = least_step_bytes(traffic(work, parameters, activations));
  if (work.precision == "bf16" && work.loss_kernel == "fused" && work.block_kernel == "fused" &&
      work.attention_is_one_kernel()) {
    account.activation_bytes = activations;
  }
  return account;
}

}  // namespace trainsuite
