#pragma once
// A model folder as transformers writes it: config.json and safetensors, one file or shards.
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "model/decoder.h"
#include "weights/safetensors.h"

namespace trainsuite {

/// The decoder that a config.json describes: model_type qwen2 or llama. Throws Error naming the
/// file and what is missing, out of range or not supported.
DecoderConfig read_model_config(const std::string& path);

class ModelFolder {
 public:
  /// Reads the configuration, maps the files and checks that every tensor of the model is there, in
  /// the right shape, and none besides. Throws Error naming folder, file and tensor.
  explicit ModelFolder(const std::string& folder);

  const DecoderConfig& config() const { return config_; }
  /// A parameter as decoder_parameters has it, on the CPU, in the files' dtype.
  at::Tensor parameter(const ParameterSpec& spec) const;

 private:
  void open_files();
  void open_shards(const std::string& index);
  void check() const;
  const Safetensors& file_of(const std::string& name) const;

  std::string folder_;
  DecoderConfig config_;
  std::vector<Safetensors> files_;
  std::map<std::string, std::size_t> file_of_;  // by tensor
};

}  // namespace trainsuite
