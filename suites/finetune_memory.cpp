// What a fine-tuning step holds at its peak: when backward begins, in the largest micro-batch.
#include <algorithm>

#include "data/batches.h"
#include "decoder_account.h"
#include "finetune.h"
#include "model/nf4.h"

namespace trainsuite {
namespace {

/// Of matrices that adapters take, of biases, and of embedding and norms, of which norms.
struct Counts {
  std::int64_t matrices = 0, biases = 0, others = 0, norms = 0;
};

Counts counts_of(const DecoderConfig& model) {
  Counts counts;
  counts.matrices = model.layers * model.width *
                    (model.qkv_rows() + model.heads * model.head_width + 3 * model.hidden);
  counts.norms = (2 * model.layers + 1) * model.width;
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

/// Bytes of an element: of matrix products, and of the residual stream.
struct Widths {
  std::int64_t compute, stream;
};

Widths widths_of(const Case& work) {
  const std::int64_t compute = work.precision == "bf16" ? 2 : 4;
  return {compute, work.finetune->wide_stream() ? 4 : compute};
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
  return std::max(logits, tokens * decoder_passing_bytes(model, finetune_keeping(work)) + matrix);
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

/// Temporaries of single operators are not known.
bool keeping_is_known(const Case& work) {
  return work.execution != "compile" && work.block_kernel != "reference" &&
         work.loss_kernel != "reference" && work.attention_is_one_kernel() &&
         work.finetune->checkpointing != "on";
}

}  // namespace

std::int64_t wide_output_bytes(const Case& work) {
  if (!work.finetune->qlora_wide_outputs || work.finetune->checkpointing == "on") return 0;
  const DecoderConfig model = case_model(work);
  const auto [compute, stream] = widths_of(work);
  // Backward keeps gate, up and silu(gate).
  return largest_micro_batch(work) * model.layers * 3 * model.hidden * (stream - compute);
}

std::int64_t adapter_count(const DecoderConfig& model, std::int64_t rank) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : adapter_parameters(model, rank)) {
    count += spec.shape[0] * spec.shape[1];
  }
  return count;
}

DecoderKeeping finetune_keeping(const Case& work) {
  const Widths bytes = widths_of(work);
  return {.element_bytes = bytes.compute,
          .residual_bytes = bytes.stream,
          .adapter_rank = work.finetune->method == "full" ? 0 : work.finetune->lora_rank};
}

FinetuneMemory finetune_memory(const Case& work) {
  const FinetuneRecipe& recipe = *work.finetune;
  const DecoderConfig model = case_model(work);
  const Counts counts = counts_of(model);
  const std::int64_t all = decoder_parameter_count(model);
  const auto [compute, stream] = widths_of(work);
  const bool full = recipe.method == "full";
  const std::int64_t trained = full ? all : adapter_count(model, recipe.lora_rank);
  // Norms have no copies in the compute dtype.
  const std::int64_t copies = compute == 4 ? 0 : compute * (full ? all - counts.norms : trained);
  FinetuneMemory memory;
  memory.weights = 4 * trained + copies;
  if (recipe.method == "lora") memory.weights += compute * all;
  if (recipe.method == "qlora") {
    memory.weights += nf4_code_bytes(counts.matrices) + maxima_bytes(model, recipe) +
                      compute * counts.biases + stream * counts.others;
  }
  const std::int64_t apart = compute == 4 ? 0 : 4 * (full ? all - counts.norms : trained);
  const std::int64_t rows = model.tied ? 0 : stream * model.vocabulary * model.width;
  memory.read_weights = memory.weights - apart - rows;
  memory.trained = trained;
  memory.optimizer = 8 * trained;
  memory.gradients = 4 * trained;
  if (!keeping_is_known(work)) return memory;
  const std::int64_t tokens = largest_micro_batch(work);
  memory.activations = tokens * decoder_kept_bytes(model, finetune_keeping(work)) +
                       passing_bytes(work, model, tokens);
  return memory;
}

}  // namespace trainsuite
