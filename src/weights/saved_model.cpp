#include "weights/saved_model.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/synced_file.h"

namespace trainsuite {

using nlohmann::json;
namespace fs = std::filesystem;

std::string model_config_json(const DecoderConfig& config, const std::string& dtype) {
  const bool qwen = config.qkv_bias;
  const json content{
      {"architectures", {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
      {"model_type", qwen ? "qwen2" : "llama"},
      {"hidden_size", config.width},
      {"intermediate_size", config.hidden},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.key_value_heads},
      {"head_dim", config.head_width},
      {"vocab_size", config.vocabulary},
      {"tie_word_embeddings", config.tied},
      {"rope_theta", config.rotary_base},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", config.rotary_base}}},
      {"rms_norm_eps", config.norm_epsilon},
      {"hidden_act", "silu"},
      {"max_position_embeddings", 32768},
      {"torch_dtype", dtype},
      {"dtype", dtype}};
  return content.dump(2) + "\n";
}

std::string adapter_config_json(std::int64_t rank, double alpha, double dropout,
                                const std::string& base) {
  const json content{
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base},
      {"r", rank},
      {"lora_alpha", alpha},
      {"lora_dropout", dropout},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"inference_mode", true},
      {"target_modules",
       {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}};
  return content.dump(2) + "\n";
}

void write_text(const std::string& path, const std::string& text) {
  write_new_file(path, {{text.data(), text.size()}});
}

void write_folder(const std::string& path, const std::function<void(const std::string&)>& fill) {
  const fs::path target = fs::absolute(path).lexically_normal();
  const std::string temporary =
      (target.parent_path() / fmt::format(".{}.{}", target.filename().string(), ::getpid()))
          .string();
  try {
    fs::create_directories(target.parent_path());
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    fill(temporary);
    sync_folder(temporary);
    // A folder cannot be renamed over one with files in it: the old one steps aside.
    const std::string old = temporary + ".old";
    if (fs::exists(target)) fs::rename(target, old);
    fs::rename(temporary, target);
    sync_folder(target.parent_path().string());
    fs::remove_all(old);
  } catch (const fs::filesystem_error& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    fail("{}: {}", path, error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

// Tried, because access() would say yes to root where nothing can be made.
void check_saveable(const std::string& folder) {
  std::error_code error;
  fs::path nearest = fs::absolute(folder).lexically_normal();
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  std::string probe = (nearest / ".trainsuite-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) {
    fail<UsageError>("--save {}: cannot make a folder in {}: {}; name another", folder,
                     nearest.string(), std::strerror(errno));
  }
  ::rmdir(probe.c_str());
}

}  // namespace trainsuite
