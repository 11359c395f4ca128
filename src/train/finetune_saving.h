#pragma once
// Writes what was fine-tuned as folders that transformers and peft load.
#include <string>

#include "train/finetune_model.h"

namespace trainsuite {

/// Writes <recipe.save>/<name>: full weights in fp32; or the adapters in peft's names, in fp32; or,
/// with recipe.save_merged, the base plus scale x B A, summed in fp32 and rounded once to the
/// base's dtype (a quantized base is dequantized first). Waits for the device.
void save_model(const FinetuneModel& model, const std::string& name);

}  // namespace trainsuite
