#pragma once
// A case: one row of a suite's table, with all settings resolved.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/account.h"

namespace trainsuite {

/// What only fine-tuning has.
struct FinetuneRecipe {
  std::string method = "full";  // full|lora|qlora
  std::int64_t lora_rank = 16;
  double lora_alpha = 32, lora_dropout = 0;
  bool qlora_upcast = false;      // embedding and norms of QLoRA in fp32, as peft prepares a model
  bool nf4_double_quant = false;  // the 4-bit base's maxima are quantized too
  bool qlora_wide_outputs = false;  // its layers give the stream's dtype, as bitsandbytes' then do
  std::string loss_on = "all";      // all|answer: tokens that are labels
  std::string packing = "on";       // on|off: examples of a micro-batch without padding
  std::int64_t loss_chunk_mib = 128;  // of logits at a time in the fused loss; 0: all at once
  std::string checkpointing = "off";  // on|off: blocks' activations are computed again in backward
  std::vector<std::int64_t> length_buckets;  // padded lengths
  std::int64_t pack_to = 1;                  // packed rows have a multiple of this many tokens
  std::string data, model;                   // files; empty: synthetic examples, random weights
  std::string save;                          // folder; empty: nothing is saved
  bool save_merged = false;
  std::string optimizer = "fused";  // fused|foreach: form of AdamW
  std::int64_t train_examples = 0, held_out = 0;
  /// Whether embedding, norms and so the residual stream are fp32, whatever computes products.
  bool wide_stream() const { return method == "full" || (method == "qlora" && qlora_upcast); }
};

struct Case {
  std::string suite;   // "ddp"
  std::string size;    // "124m"
  std::string recipe;  // "accumulate4"
  std::string name() const { return size + "-" + recipe; }

  bool trains = true;  // false: nothing is trained, and its settings mean nothing
  std::string skip;    // why it cannot run here; empty: it runs
  std::string what;    // what the row does, for the plan: "bf16 gradients on the wire"
  int ranks = 1;       // that take part: 1 where rank 0 runs alone
  /// Padded; 0 where steps differ.
  std::int64_t tokens_per_step() const {
    return finetune ? 0 : micro_batch * accumulate * sequence * ranks;
  }

  bool one_rank = false;      // runs on rank 0 alone while the others wait
  bool communicates = true;   // gradients go through the communicator (also on one rank)
  std::string wire = "fp32";  // fp32|bf16: dtype of gradients on the wire
  std::int64_t micro_batch = 8, accumulate = 1, sequence = 1024, vocabulary = 50304;
  std::int64_t steps = 40, warmup = 10;  // measured steps follow the warm-up
  double learning_rate = 1e-4;
  std::string precision = "bf16";  // bf16|fp32
  std::string attention = "auto", loss_kernel = "auto", block_kernel = "auto";
  /// Else its scores are tensors that backward keeps.
  bool attention_is_one_kernel() const { return attention != "naive" && attention != "math"; }
  std::int64_t seed = 1;
  bool vary_seed = false;  // repeat N runs with seed + N: where results, not times, are compared
  std::optional<FinetuneRecipe> finetune;
  std::optional<std::int64_t> predicted_bytes;  // peak of a device, where it can be foretold
  std::optional<StepAccount> account;           // by the model's own definition
  std::optional<double> expected_seconds;       // of all steps, for plans
  bool instrumented = true;                     // false: only the loop as a whole is timed
  std::string execution = "eager";              // eager|compile|graph
  bool on_request = false;  // runs only where --execution or --case asks for its kind
  double work = 1;          // expected cost relative to other cases, for the ETA
};

}  // namespace trainsuite
