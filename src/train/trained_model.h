#pragma once
// The model of a case, as the trainer sees it: its parameters, and a loss of tokens.
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "compile/block_request.h"
#include "model/parameters.h"
#include "run/case.h"

namespace trainsuite {

class CompiledParts;

class TrainedModel {
 public:
  virtual ~TrainedModel() = default;
  virtual std::vector<ParameterSpec> parameters() const = 0;
  /// In the order of the forward pass; the first use is the token embedding.
  virtual std::vector<ParameterUse> uses() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// `leaves` in order of uses(), tokens [batch, sequence + 1]: scale x sum of the token losses.
  /// `parts`: compiled blocks in the order of requests(), or null.
  virtual at::Tensor loss(at::TensorList leaves, const at::Tensor& tokens, double scale,
                          const CompiledParts* parts) const = 0;
  /// The blocks that can be compiled.
  virtual std::vector<BlockRequest> requests() const = 0;
};

/// `rows_gradient`: the token embedding's gradient is a sparse tensor of the touched rows.
std::unique_ptr<TrainedModel> make_model(const Case& work, at::Device device, bool rows_gradient);

/// Query heads of the case's model and their width.
struct AttentionHeads {
  std::int64_t count, key_value, width;  // heads of queries, of keys and values
};
AttentionHeads attention_heads(const Case& work);

/// Whether weights, gradients and optimizer state are bf16 themselves, with no fp32 copy.
bool pure_bf16(const Case& work);

}  // namespace trainsuite
