#pragma once
// Linear layers behind one call: dense or NF4, with or without low-rank adapters.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/gradient_sink.h"
#include "model/nf4.h"

namespace trainsuite {

/// Inverted dropout of the adapters' input in training. The mask is a hash of the counter, the
/// layer and the element, so that backward makes it again.
struct AdapterDropout {
  double probability = 0;
  at::Tensor counter{};  // int64 [1] on the device: one value a micro-batch
  std::int64_t layer = 0;
};

/// Low-rank adapters (Hu et al. 2021) of the layers whose matrices lie one below the other in a
/// joint one. Layer i adds scale x (x A_i^T) B_i^T to its rows of y.
struct Adapters {
  at::Tensor a;                    // [layers x rank, in], A_i one below the other
  at::Tensor b;                    // [out, rank], B_i one below the other
  std::vector<std::int64_t> rows;  // of y, a layer; their sum is out
  double scale = 1;                // alpha / rank
  GradientTarget a_target{}, b_target{};
  AdapterDropout dropout{};  // of x, one mask for all layers of the joint one
};

/// y = x W^T + b, and what the adapters add.
struct Linear {
  at::Tensor weight{};                       // [out, in]; undefined where quantized
  at::Tensor bias{};                         // [out]; undefined: none
  Nf4 quantized{};                           // of W; undefined where dense
  std::vector<std::int64_t> shape{};         // {out, in} of a quantized W
  at::ScalarType compute_type = at::kFloat;  // of a quantized layer's input and product
  Adapters adapters{};                       // a undefined: none
  GradientTarget weight_target{}, bias_target{};
};

/// x [tokens, in] in the layer's input_dtype -> [tokens, out]. Without adapters, quantization and
/// a sink the layer trains as at::linear does. Otherwise backward keeps the adapters' inner
/// activations, W as it is stored (a quantized W is dequantized again) and, where A or W trains, x.
at::Tensor apply(const Linear& linear, const at::Tensor& x);

/// The RMSNorm before a layer.
struct Norm {
  at::Tensor weight;  // [width], in the residual stream's dtype
  double epsilon;
  GradientTarget target{};
};
struct NormLinear {
  at::Tensor y, sum;
};
/// sum = residual + delta (undefined: residual itself) and y = the layer of sum's RMSNorm. Keeps
/// the sum, not the norm: backward computes it again.
NormLinear norm_linear(const at::Tensor& residual, const at::Tensor& delta, const Norm& norm,
                       const Linear& linear);

/// The layer of silu(gate) x up of gate_up [tokens, 2 x in], of which it keeps gate_up alone.
at::Tensor swiglu_linear(const at::Tensor& gate_up, const Linear& linear);

at::ScalarType input_dtype(const Linear& linear);

}  // namespace trainsuite
