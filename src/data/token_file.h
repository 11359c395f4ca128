#pragma once
// Token files (docs/data.md), as trainsuite-prepare-data writes them.
#include <string>

#include "data/examples.h"

namespace trainsuite {

/// Reads and checks everything. Throws Error naming the file, the part and the fix where the file
/// is missing, damaged, of another version, or inconsistent.
TrainingData read_token_file(const std::string& path);

}  // namespace trainsuite
