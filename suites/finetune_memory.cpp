// What a fine-tuning step holds at its peak: when backward begins, in the largest micro-batch.
#include <algorithm>

#include "data/batches.h"
#include "finetune.h"
#include "model/nf4.h"

namespace trainsuite {
namespace {

/// Of matrices that adapters take, of biases, and of embedding and norms.
struct Counts {
  std::int64_t matrices = 0, biases = 0, others = 0;
};

Counts counts_of(const DecoderConfig& model) {
  Counts counts;
  counts.matrices = model.layers * model.width *
                    (model.qkv_rows() + model.heads * model.head_width + 3 * model.hidden);
  if (model.qkv_bias) counts.biases = model.layers * model.qkv_rows();
  counts.others = decoder_parameter_count(model) - counts.matrices - counts.biases;
  return counts;
}

/// Of each matrix, whose blocks are its own.
std::int64_t maxima_bytes(const DecoderConfig& model, const FinetuneRecipe& recipe) {
  std::int64_t bytes = 0;
  for (const std::int64_t rows :
       {model.qkv_rows(), model.heads * model.head_width, 2 * model.hidden, model.hidden}) {
    bytes += nf4_maxima_bytes(rows * model.width, recipe.nf4_double_quant);
  }
  return model.layers * bytes;
}

std::int64_t adapter_count(const DecoderConfig& model, std::int64_t rank) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : adapter_parameters(model, rank)) {
    count += spec.shape[0] * spec.shape[1];
  }
  return count;
}

/// Bytes of an element: of matrix products, and of the residual stream.
struct Widths {
  std::int64_t compute, stream;
};

Widths widths_of(const Case& work) {
  const std::int64_t compute = work.precision == "bf16" ? 2 : 4;
  return {compute, work.finetune->wide_stream() ? 4 : compute};
}

/// A token's, over all blocks: two sums, the heads, their attention, gate and up, and the adapters'
/// inner values; then the last norm and what the loss keeps.
std::int64_t token_bytes(const Case& work, const DecoderConfig& model) {
  const Widths bytes = widths_of(work);
  const std::int64_t inner = work.finetune->method == "full" ? 0 : 7 * work.finetune->lora_rank;
  const std::int64_t block = 2 * (bytes.stream * model.width + 4) + 4 * model.heads +
                             bytes.compute * (model.qkv_rows() + model.heads * model.head_width +
                                              2 * model.hidden + inner);
  return model.layers * block + (bytes.stream + 8 + 3 * bytes.compute) * model.width;
}

/// The larger of what the loss holds besides and what the last block's backward does.
std::int64_t passing_bytes(const Case& work, const DecoderConfig& model, std::int64_t tokens) {
  const std::int64_t compute = widths_of(work).compute;
  const std::int64_t row = compute * model.vocabulary;
  const std::int64_t chunk = work.finetune->loss_chunk_mib << 20;
  const std::int64_t logits =
      chunk == 0 ? tokens * row : std::min(tokens * row, std::max(row, chunk));
  const std::int64_t matrix =
      work.finetune->method == "qlora" ? 2 * compute * model.hidden * model.width : 0;
  return std::max(logits, 4 * compute * model.hidden * tokens + matrix);
}

std::int64_t largest_micro_batch(const Case& work) {
  const FinetuneRecipe& recipe = *work.finetune;
  const BatchPlan plan(training_data(work).train, {.micro_batch = work.micro_batch,
                                                   .accumulate = work.accumulate,
                                                   .ranks = work.ranks,
                                                   .packed = recipe.packing == "on",
                                                   .length_buckets = recipe.length_buckets,
                                                   .pack_to = recipe.pack_to});
  return plan.largest_micro_batch(work.warmup + work.steps);
}

}  // namespace

std::int64_t wide_output_bytes(const Case& work) {
  if (!work.finetune->qlora_wide_outputs || work.finetune->checkpointing == "on") return 0;
  const DecoderConfig model = case_model(work);
  const auto [compute, stream] = widths_of(work);
  // Backward keeps gate, up and silu(gate).
  return largest_micro_batch(work) * model.layers * 3 * model.hidden * (stream - compute);
}

std::optional<FinetuneMemory> finetune_memory(const Case& work) {
  const FinetuneRecipe& recipe = *work.finetune;
  if (work.block_kernel == "reference" || work.loss_kernel == "reference" ||
      work.attention == "naive" || work.attention == "math" || recipe.checkpointing == "on") {
    return std::nullopt;  // temporaries of single operators are not known
  }
  const DecoderConfig model = case_model(work);
  const Counts counts = counts_of(model);
  const std::int64_t all = decoder_parameter_count(model);
  const auto [compute, stream] = widths_of(work);
  const bool full = recipe.method == "full";
  const std::int64_t trained = full ? all : adapter_count(model, recipe.lora_rank);
  const std::int64_t copies = compute == 4 ? 0 : compute * trained;
  FinetuneMemory memory;
  memory.weights = 4 * trained + copies;
  if (recipe.method == "lora") memory.weights += compute * all;
  if (recipe.method == "qlora") {
    memory.weights += nf4_code_bytes(counts.matrices) + maxima_bytes(model, recipe) +
                      compute * counts.biases + stream * counts.others;
  }
  memory.optimizer = 8 * trained;
  memory.gradients = 4 * trained;
  const std::int64_t tokens = largest_micro_batch(work);
  memory.activations = tokens * token_bytes(work, model) + passing_bytes(work, model, tokens);
  return memory;
}

}  // namespace trainsuite
