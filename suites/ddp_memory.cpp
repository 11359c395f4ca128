#include <algorithm>

#include "ddp.h"
#include "model/gpt2.h"

namespace trainsuite {

std::optional<std::int64_t> predicted_peak_bytes(const Case& work) {
  if (work.precision != "bf16" || work.loss_kernel != "fused" || work.block_kernel != "fused") {
    return std::nullopt;
  }
  const auto model = gpt2_config(work.size, work.vocabulary, work.sequence);
  std::int64_t parameters = 0;
  for (const auto& spec : gpt2_parameters(model)) {
    std::int64_t elements = 1;
    for (const auto extent : spec.shape) elements *= extent;
    parameters += elements;
  }
  const auto tokens = work.micro_batch * work.sequence;
  const auto head = model.vocabulary * model.width;
  const auto states = (4 + 2 + 8) * parameters;  // fp32 weights, bf16 copies, two AdamW moments
  // What a block keeps for backward, a token: two residual sums (fp32), two norms, q, k, v,
  // attention, and the MLP before and after GELU (bf16).
  const auto block = (2 * 4 + 2 * 2 + 3 * 2 + 2 + 4 * 2 + 4 * 2) * model.width;
  const auto ends = (4 + 4 + 2 + 2) * model.width + 2 * model.vocabulary;  // embedding to logits
  std::int64_t gradients = 2 * head;  // the head's, first to come, while all activations live
  if (work.communicates) {
    gradients += (work.wire == "bf16" ? 6 : 4) * parameters;  // buckets
  } else {
    gradients += work.accumulate > 1 ? 4 * parameters : 4 * head;
  }
  return states + tokens * (model.layers * block + ends) + gradients;
}

}  // namespace trainsuite
