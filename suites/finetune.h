#pragma once
// The finetune suite: full, LoRA and QLoRA fine-tuning of Qwen2.5, as a table of cases.
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "data/examples.h"
#include "decoder_account.h"
#include "model/decoder.h"
#include "run/case.h"
#include "train/finetune_model.h"

namespace trainsuite {

/// Every case of the suite, all sizes, in plan order, with the options applied. Reads --data where
/// it is given: throws Error for a file that cannot be used, UsageError for flags that contradict
/// it or each other.
std::vector<Case> finetune_cases(const Options& options, bool cuda, int ranks);

/// The sizes that run where --size is not given: 1.5b on GPUs, tiny on a CPU (dry run).
std::vector<std::string> finetune_default_sizes(const Options& options, bool cuda);

/// The examples that the case trains on; read or made once a process.
const TrainingData& training_data(const Case& work);

/// Bytes of a device at the peak of a step: when backward begins in the largest micro-batch.
struct FinetuneMemory {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
  std::int64_t read_weights = 0;  // of weights: those that micro-batches read whole
  std::int64_t trained = 0;       // parameters
  /// Absent where single operators run or blocks are computed again.
  std::optional<std::int64_t> activations{};
};
/// Reads or makes the examples where activations are known.
FinetuneMemory finetune_memory(const Case& work);
/// How its blocks keep what backward needs with fused kernels.
DecoderKeeping finetune_keeping(const Case& work);
/// Parameters of all adapters.
std::int64_t adapter_count(const DecoderConfig& model, std::int64_t rank);
/// Bytes, operations and traffic: means over the case's steps, whose examples are read or made.
StepAccount finetune_account(const Case& work);

/// What QLoRA's peak holds for layers' outputs in the residual stream's dtype instead of the
/// compute dtype; 0 where they are not.
std::int64_t wide_output_bytes(const Case& work);

/// The case's model: its size's, or that of its folder; read once a process.
DecoderConfig case_model(const Case& work);
/// Its base's values: seeded random ones, or the folder's.
WeightSource case_weights(const Case& work, at::Device device);

}  // namespace trainsuite
