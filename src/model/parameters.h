#pragma once
// How a model names, shapes, initialises and uses its parameters.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainsuite {

/// One parameter: its name, shape (linear weights [out, in]) and initial values: constant where
/// `init_std` is 0, else random (counter hash) with mean 0 and that standard deviation.
struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  double init_std = 0;
  double init_constant = 0;
};

/// One use of a parameter in the forward pass. A tied embedding has two: as embedding (fp32) and
/// as head (compute dtype), so that each gradient is had as soon as it is ready.
struct ParameterUse {
  std::size_t parameter;  // index into the list of specs
  bool compute_dtype;     // used in the compute dtype (matrices and their biases) or fp32
};

}  // namespace trainsuite
