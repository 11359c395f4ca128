#include "weights/model_folder.h"

#include <ATen/ops/cat.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "weights/model_names.h"

namespace trainsuite {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostExtent = std::int64_t{1} << 24;
constexpr std::uintmax_t kMostJsonBytes = 100'000'000;

json read_json(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) fail("{}: {}", path, error.message());
  if (size > kMostJsonBytes) fail("{}: {} bytes of JSON are too many", path, size);
  std::ifstream file(path);
  const json value = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) fail("{}: no JSON object", path);
  return value;
}

class ConfigReader {
 public:
  explicit ConfigReader(const std::string& path) : path_(path), json_(read_json(path)) {}

  DecoderConfig read() const {
    DecoderConfig config;
    const std::string type = text("model_type");
    if (type != "qwen2" && type != "llama") {
      fail("{}: model_type {} is not supported; qwen2 and llama are", path_, quoted(type));
    }
    config.name = type;
    config.layers = number("num_hidden_layers", 10000);
    config.width = number("hidden_size", kMostExtent);
    config.heads = number("num_attention_heads", kMostExtent);
    config.key_value_heads =
        has("num_key_value_heads") ? number("num_key_value_heads", kMostExtent) : config.heads;
    config.head_width = has("head_dim") ? number("head_dim", 4096) : config.width / config.heads;
    config.hidden = number("intermediate_size", kMostExtent);
    config.vocabulary = number("vocab_size", kMostExtent);
    config.qkv_bias = type == "qwen2";
    config.tied = flag("tie_word_embeddings", false);
    config.rotary_base = rotary_base();
    config.norm_epsilon = real("rms_norm_eps", json_, 1e-6);
    check(config);
    return config;
  }

 private:
  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }

  std::string text(const char* name) const {
    if (!has(name) || !json_[name].is_string()) fail("{}: {} is missing or no text", path_, name);
    return json_[name];
  }

  std::int64_t number(const char* name, std::int64_t most) const {
    if (!has(name) || !json_[name].is_number_unsigned() || json_[name].get<std::uint64_t>() < 1 ||
        json_[name].get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
      fail("{}: {} is missing or no number from 1 to {}", path_, name, most);
    }
    return json_[name];
  }

  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!json_[name].is_boolean()) fail("{}: {} is neither true nor false", path_, name);
    return json_[name];
  }

  double real(const char* name, const json& place, double otherwise) const {
    if (!place.contains(name) || place[name].is_null()) return otherwise;
    if (!place[name].is_number() || !(place[name].get<double>() > 0)) {
      fail("{}: {} is no number above 0", path_, name);
    }
    return place[name];
  }

  /// transformers 5 has rope_parameters, 4 has rope_theta and rope_scaling.
  double rotary_base() const {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      if (!has(name)) continue;
      const json& rope = json_[name];
      if (!rope.is_object()) fail("{}: {} is no JSON object", path_, name);
      const json type = rope.contains("rope_type") ? rope["rope_type"]
                        : rope.contains("type")    ? rope["type"]
                                                   : json("default");
      if (type != "default") {
        fail("{}: {} of type {} is not supported", path_, name, quoted(type.dump()));
      }
      if (rope.contains("rope_theta")) return real("rope_theta", rope, 1e4);
    }
    return real("rope_theta", json_, 1e4);
  }

  void check(const DecoderConfig& config) const {
    if (has("hidden_act") && json_["hidden_act"] != "silu") {
      fail("{}: hidden_act {} is not supported; silu is", path_,
           quoted(json_["hidden_act"].dump()));
    }
    for (const char* name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
      if (flag(name, false)) fail("{}: {} is not supported", path_, name);
    }
    if (config.heads % config.key_value_heads != 0) {
      fail("{}: {} attention heads cannot share {} key-value heads", path_, config.heads,
           config.key_value_heads);
    }
    if (config.head_width < 2 || config.head_width % 2 != 0) {
      fail("{}: heads of width {}; an even width is needed", path_, config.head_width);
    }
  }

  std::string path_;
  json json_;
};

}  // namespace

DecoderConfig read_model_config(const std::string& path) { return ConfigReader(path).read(); }

ModelFolder::ModelFolder(const std::string& folder) : folder_(folder) {
  if (!std::filesystem::is_directory(folder)) {
    fail("{}: no folder; give one with config.json and model.safetensors", folder);
  }
  config_ = read_model_config(folder + "/config.json");
  open_files();
  check();
}

void ModelFolder::open_files() {
  const std::string one = folder_ + "/model.safetensors", index = one + ".index.json";
  if (std::filesystem::exists(one)) {
    files_.emplace_back(one);
    for (const auto& [name, tensor] : files_[0].tensors()) file_of_[name] = 0;
  } else if (std::filesystem::exists(index)) {
    open_shards(index);
  } else {
    fail("{}: neither model.safetensors nor model.safetensors.index.json", folder_);
  }
}

void ModelFolder::open_shards(const std::string& index) {
  const json content = read_json(index);
  if (!content.contains("weight_map") || !content["weight_map"].is_object()) {
    fail("{}: weight_map is missing", index);
  }
  std::map<std::string, std::size_t> opened;
  for (const auto& [name, file] : content["weight_map"].items()) {
    if (!file.is_string()) fail("{}: the file of {} is no text", index, quoted(name));
    const std::string shard = file;
    if (shard.empty() || std::filesystem::path(shard).filename() != shard || shard == "..") {
      fail("{}: {} is no file name within the folder", index, quoted(shard));
    }
    if (!opened.contains(shard)) {
      opened[shard] = files_.size();
      files_.emplace_back(folder_ + "/" + shard);
    }
    const std::size_t number = opened[shard];
    if (!files_[number].tensors().contains(name)) {
      fail("{}: {} should hold {} and does not", index, quoted(shard), quoted(name));
    }
    file_of_[name] = number;
  }
}

const Safetensors& ModelFolder::file_of(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) fail("{}: the tensor {} is missing", folder_, quoted(name));
  return files_[found->second];
}

void ModelFolder::check() const {
  std::set<std::string> wanted;
  for (const ParameterSpec& spec : decoder_parameters(config_)) {
    for (const StoredPart& part : stored_parts(config_, spec)) {
      wanted.insert(part.name);
      std::vector<std::int64_t> shape = spec.shape;
      shape[0] = part.rows;
      const Safetensors& file = file_of(part.name);
      const at::Tensor tensor = file.tensor(part.name);
      if (tensor.sizes() != at::IntArrayRef(shape)) {
        fail("{}: {} has shape [{}] and config.json asks for [{}]", file.path(), quoted(part.name),
             fmt::join(tensor.sizes(), ", "), fmt::join(shape, ", "));
      }
    }
  }
  if (config_.tied) wanted.insert("lm_head.weight");  // some writers keep the copy
  for (const auto& [name, file] : file_of_) {
    if (wanted.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    fail("{}: the tensor {} is of no {} model", files_[file].path(), quoted(name), config_.name);
  }
}

at::Tensor ModelFolder::parameter(const ParameterSpec& spec) const {
  std::vector<at::Tensor> parts;
  for (const StoredPart& part : stored_parts(config_, spec)) {
    parts.push_back(file_of(part.name).tensor(part.name));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace trainsuite
