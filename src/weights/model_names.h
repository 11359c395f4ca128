#pragma once
// transformers' names for the parts of the decoder's joint matrices.
#include <string>
#include <utility>
#include <vector>

#include "model/decoder.h"

namespace trainsuite {

/// One tensor of a model folder: its name there and its rows in our parameter (all, where the
/// parameter is no joint one).
struct StoredPart {
  std::string name;
  std::int64_t rows;
};
std::vector<StoredPart> stored_parts(const DecoderConfig& config, const ParameterSpec& spec);

}  // namespace trainsuite
