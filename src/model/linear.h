#pragma once
// Linear layers behind one call: dense or NF4, with or without low-rank adapters.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/nf4.h"

namespace trainsuite {

/// Low-rank adapters (Hu et al. 2021) of the layers whose matrices lie one below the other in a
/// joint one. Layer i adds scale x (x A_i^T) B_i^T to its rows of y.
struct Adapters {
  at::Tensor a;                    // [layers x rank, in], A_i one below the other
  at::Tensor b;                    // [out, rank], B_i one below the other
  std::vector<std::int64_t> rows;  // of y, a layer; their sum is out
  double scale = 1;                // alpha / rank
};

/// y = x W^T + b, and what the adapters add.
struct Linear {
  at::Tensor weight{};                       // [out, in]; undefined where quantized
  at::Tensor bias{};                         // [out]; undefined: none
  Nf4 quantized{};                           // of W; undefined where dense
  std::vector<std::int64_t> shape{};         // {out, in} of a quantized W
  at::ScalarType compute_type = at::kFloat;  // of a quantized layer's input and product
  Adapters adapters{};                       // a undefined: none
};

/// x [tokens, in] in the layer's input_dtype -> [tokens, out]. Without adapters and quantization
/// the layer trains as at::linear does; otherwise W and b are frozen, and backward keeps x, the
/// adapters' inner activations and W as it is stored: a quantized W is dequantized again.
at::Tensor apply(const Linear& linear, const at::Tensor& x);
at::ScalarType input_dtype(const Linear& linear);

}  // namespace trainsuite
