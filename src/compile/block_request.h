#pragma once
// What is to be compiled: a function of the ops library on tensors of fixed shapes.
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trainsuite {

struct BlockTensor {
  std::vector<std::int64_t> shape;
  at::ScalarType dtype;  // float32, bfloat16, int64 or uint8
  bool gradient;         // tensors without come last
};

struct TensorAt {
  std::size_t index;
};
struct TensorsFrom {  // a Tensor[] argument
  std::size_t first, count;
};
using BlockArgument = std::variant<TensorAt, TensorsFrom, std::int64_t, double, bool>;

/// One op of the library, `trainsuite::<op>`, that returns one tensor.
struct BlockRequest {
  std::string name;  // of its packages: letters, digits, '_' and '-'
  std::string op;
  std::vector<BlockTensor> tensors;
  std::vector<BlockArgument> arguments;
  bool attention = true;  // it calls the attention kernel that the target names
};

/// What it is compiled for.
struct CompileTarget {
  bool cuda = false;
  int ordinal = 0;           // CUDA ordinal of the GPU that tunes kernels
  std::string architecture;  // "sm_90", or the CPU's capability
  std::string attention;     // name for use_attention
  bool deterministic = false;
};

/// Both as JSON, the same text for the same work: what capture.py reads and the cache's key.
std::string to_json_text(const BlockRequest& request);
std::string to_json_text(const CompileTarget& target);

}  // namespace trainsuite
