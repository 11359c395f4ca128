#include "compile/block_request.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace trainsuite {
namespace {

using nlohmann::json;

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kLong:
      return "int64";
    case at::kByte:
      return "uint8";
    default:
      fail("compile: tensors of type {} are not provided for", c10::toString(dtype));
  }
}

json as_json(const BlockArgument& argument) {
  if (const auto* one = std::get_if<TensorAt>(&argument)) return {{"tensor", one->index}};
  if (const auto* some = std::get_if<TensorsFrom>(&argument)) {
    return {{"tensors", {some->first, some->count}}};
  }
  if (const auto* number = std::get_if<std::int64_t>(&argument)) return *number;
  if (const auto* number = std::get_if<double>(&argument)) return *number;
  return std::get<bool>(argument);
}

}  // namespace

std::string to_json_text(const BlockRequest& request) {
  json tensors = json::array(), arguments = json::array();
  for (const auto& tensor : request.tensors) {
    tensors.push_back({{"shape", tensor.shape},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"gradient", tensor.gradient}});
  }
  for (const auto& argument : request.arguments) arguments.push_back(as_json(argument));
  return json{
      {"name", request.name}, {"op", request.op}, {"tensors", tensors}, {"arguments", arguments}}
      .dump();
}

std::string to_json_text(const CompileTarget& target) {
  // The ordinal is left out: a package runs on any GPU of the architecture.
  return json{{"device", target.cuda ? "cuda" : "cpu"},
              {"architecture", target.architecture},
              {"attention", target.attention},
              {"deterministic", target.deterministic}}
      .dump();
}

}  // namespace trainsuite
