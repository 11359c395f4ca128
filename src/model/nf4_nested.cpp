// Maxima of NF4 blocks, quantized themselves.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/error.h"
#include "model/nf4.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kNestedBlock = 256;

std::int64_t nested_blocks(std::int64_t maxima) {
  return (maxima + kNestedBlock - 1) / kNestedBlock;
}

/// The 8-bit dynamic map: signs, exponents 10^-6 to 1, and the more fraction values the larger.
at::Tensor dynamic_map() {
  std::vector<double> values{0.0, 1.0};
  for (int exponent = 0; exponent < 7; ++exponent) {
    const at::Tensor bounds = at::linspace(0.1, 1, (1 << exponent) + 1, at::kFloat);
    const std::int64_t count = bounds.numel() - 1;
    const at::Tensor means = (bounds.narrow(0, 0, count) + bounds.narrow(0, 1, count)) / 2.0;
    const at::Tensor scaled = means * std::pow(10.0, exponent - 6);
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = scaled.const_data_ptr<float>()[i];
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  return at::tensor(values, at::kFloat);
}

/// [blocks, 256], zeros beyond the last.
at::Tensor in_blocks(const at::Tensor& x) {
  const std::int64_t blocks = nested_blocks(x.numel());
  return at::constant_pad_nd(x, {0, blocks * kNestedBlock - x.numel()}).view({blocks, -1});
}

/// The nearest of the sorted map's values, the lower one of two as near, to a value in -1 to 1
/// rounded to one of 65,536 even steps: bitsandbytes' table has an entry for each.
at::Tensor nearest(const at::Tensor& value, const at::Tensor& map) {
  constexpr double steps = 65535;
  const at::Tensor scaled = ((value + 1) * 0.5 * steps + 0.5).floor() * (2 / steps) - 1;
  const at::Tensor above = at::bucketize(scaled, map).clamp(1, 255);
  const at::Tensor below = above - 1;
  const at::Tensor to_above = (map.index({above}) - scaled).abs();
  const at::Tensor to_below = (map.index({below}) - scaled).abs();
  return at::where(to_above < to_below, above, below);
}

}  // namespace

std::int64_t nf4_maxima_bytes(std::int64_t values, bool nested) {
  const std::int64_t maxima = nf4_blocks(values);
  if (!nested) return 4 * maxima;
  return maxima + 4 * (nested_blocks(maxima) + 1 + 256);
}

Nf4 nf4_nested(const Nf4& quantized) {
  const at::Tensor offset = quantized.absmax.mean();
  const at::Tensor rest = in_blocks(quantized.absmax - offset);
  const at::Tensor most = std::get<0>(rest.abs().max(1, /*keepdim=*/true));
  const at::Tensor map = dynamic_map().to(rest.device());
  const at::Tensor scaled = (rest / most.clamp_min(1e-38)).clamp(-1, 1);
  const at::Tensor codes = nearest(scaled, map).masked_fill(most == 0, 0);
  Nf4 out;
  out.codes = quantized.codes;
  out.nested.codes = codes.to(at::kByte).flatten().narrow(0, 0, quantized.absmax.numel()).clone();
  out.nested.absmax = most.flatten();
  out.nested.offset = offset;
  out.nested.map = map;
  return out;
}

at::Tensor nf4_maxima(const Nf4& quantized) {
  const NestedMaxima& nested = quantized.nested;
  if (!nested.codes.defined()) return quantized.absmax;
  const at::Tensor values = in_blocks(nested.map.index_select(0, nested.codes.to(at::kInt)));
  const at::Tensor maxima = values * nested.absmax.unsqueeze(1);
  return maxima.flatten().narrow(0, 0, nested.codes.numel()) + nested.offset;
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("nf4_nested(Tensor absmax) -> (Tensor, Tensor, Tensor)", [](const at::Tensor& absmax) {
    const Nf4 made = nf4_nested({absmax, absmax});
    return std::make_tuple(made.nested.codes, made.nested.absmax, made.nested.offset);
  });
  m.def("nf4_nested_maxima(Tensor codes, Tensor absmax, Tensor offset) -> Tensor",
        [](const at::Tensor& codes, const at::Tensor& absmax, const at::Tensor& offset) {
          return nf4_maxima({codes, {}, {codes, absmax, offset, dynamic_map().to(codes.device())}});
        });
}

}  // namespace trainsuite
