#include "weights/model_names.h"

namespace trainsuite {
namespace {

using Parts = std::vector<std::pair<const char*, std::int64_t>>;

std::vector<StoredPart> split(const std::string& name, const std::string& joint,
                              const Parts& parts) {
  std::vector<StoredPart> stored;
  const auto at = name.find(joint);
  for (const auto& [part, rows] : parts) {
    std::string own = name;
    own.replace(at, joint.size(), part);
    stored.push_back({own, rows});
  }
  return stored;
}

}  // namespace

std::vector<StoredPart> stored_parts(const DecoderConfig& config, const ParameterSpec& spec) {
  const bool head = spec.name.starts_with("lm_head");
  const std::string name = head ? spec.name : "model." + spec.name;
  const std::int64_t query = config.heads * config.head_width;
  const std::int64_t key = config.key_value_heads * config.head_width;
  if (name.find("qkv_proj") != std::string::npos) {
    return split(name, "qkv_proj", {{"q_proj", query}, {"k_proj", key}, {"v_proj", key}});
  }
  if (name.find("gate_up_proj") != std::string::npos) {
    return split(name, "gate_up_proj", {{"gate_proj", config.hidden}, {"up_proj", config.hidden}});
  }
  return {{name, spec.shape[0]}};
}

}  // namespace trainsuite
