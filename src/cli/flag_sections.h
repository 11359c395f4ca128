#pragma once
// Sections of the flag table that have files of their own, in the order of --help.
#include <vector>

#include "cli/flag_table.h"

namespace trainsuite {

std::vector<Flag> recipe_flags();
std::vector<Flag> finetune_flags();
std::vector<Flag> compile_flags();

}  // namespace trainsuite
