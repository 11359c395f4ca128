#pragma once
// NF4 storage of frozen matrices: 4-bit codes in blocks of 64 values with an fp32 absolute maximum.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainsuite {

/// Maxima that are quantized themselves, less their mean, in blocks of 256 to an 8-bit dynamic map
/// (Dettmers 2016), as bitsandbytes' nested statistics.
struct NestedMaxima {
  at::Tensor codes;   // uint8 [nf4_blocks]
  at::Tensor absmax;  // fp32 [a block of 256 codes]
  at::Tensor offset;  // fp32 0-d: the mean
  at::Tensor map;     // fp32 [256]
};

/// codes: uint8 [nf4_code_bytes], two codes a byte, the first in the upper half.
/// absmax: fp32 [nf4_blocks]: 4.5 bits a value; undefined where nested: 4.13 bits.
struct Nf4 {
  at::Tensor codes, absmax;
  NestedMaxima nested{};
};

/// Bytes of codes and number of maxima of so many values.
std::int64_t nf4_code_bytes(std::int64_t values);
std::int64_t nf4_blocks(std::int64_t values);

/// Bytes of so many values' maxima, as they are kept.
std::int64_t nf4_maxima_bytes(std::int64_t values, bool nested);

/// The same codes with nested maxima. Bit-equal to bitsandbytes 0.50.2 on a CPU.
Nf4 nf4_nested(const Nf4& quantized);
/// The maxima as fp32 [nf4_blocks], computed where nested.
at::Tensor nf4_maxima(const Nf4& quantized);

/// The values of x (fp32, bf16 or fp16, any shape and strides) in row-major order. Bit-equal to
/// bitsandbytes 0.50.2 on a CPU. A block of zeros gives zeros; a block with NaN or infinity has
/// that as maximum, and NaN comes back for all of it.
Nf4 nf4_quantize(const at::Tensor& x);

/// code x maximum, rounded once to `dtype` (fp32, bf16 or fp16), in `shape`.
at::Tensor nf4_dequantize(const Nf4& quantized, at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace trainsuite
