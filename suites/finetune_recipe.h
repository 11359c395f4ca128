#pragma once
// What the flags make of fine-tuning's own settings.
#include <string>

#include "cli/options.h"
#include "run/case.h"

namespace trainsuite {

/// Of an eager row. `method`: full|lora|qlora. Throws UsageError for flags that contradict each
/// other.
FinetuneRecipe finetune_recipe(const std::string& method, const Options& options);

/// Throws UsageError for flags that no row of the suite can follow.
void check_finetune_flags(const Options& options);

}  // namespace trainsuite
