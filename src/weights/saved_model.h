#pragma once
// Folders that transformers and peft load.
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/decoder.h"

namespace trainsuite {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// config.json of the decoder, with the weights' dtype ("float32", "bfloat16").
std::string model_config_json(const DecoderConfig& config, const std::string& dtype);
/// adapter_config.json of adapters on all of a decoder's linear layers. `base`: the base's folder.
std::string adapter_config_json(std::int64_t rank, double alpha, double dropout,
                                const std::string& base);

/// Makes the folder `path` whole or not at all: `fill` writes into a temporary folder beside it,
/// which takes its name when all is on disk. A folder of that name is replaced. Throws Error naming
/// the folder and the reason.
void write_folder(const std::string& path, const std::function<void(const std::string&)>& fill);
/// Throws UsageError where folders could not be made in `folder`, which need not exist yet.
/// Leaves nothing behind.
void check_saveable(const std::string& folder);
/// A file of text, put on disk.
void write_text(const std::string& path, const std::string& text);

}  // namespace trainsuite
