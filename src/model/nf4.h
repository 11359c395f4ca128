#pragma once
// NF4 storage of frozen matrices: 4-bit codes in blocks of 64 values with an fp32 absolute maximum.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainsuite {

/// codes: uint8 [nf4_code_bytes], two codes a byte, the first in the upper half.
/// absmax: fp32 [nf4_blocks]. 4.5 bits a value.
struct Nf4 {
  at::Tensor codes, absmax;
};

/// Bytes of codes and number of maxima of so many values.
std::int64_t nf4_code_bytes(std::int64_t values);
std::int64_t nf4_blocks(std::int64_t values);

/// The values of x (fp32, bf16 or fp16, any shape and strides) in row-major order. Bit-equal to
/// bitsandbytes 0.50.2 on a CPU. A block of zeros gives zeros; a block with NaN or infinity has
/// that as maximum, and NaN comes back for all of it.
Nf4 nf4_quantize(const at::Tensor& x);

/// code x maximum, rounded once to `dtype` (fp32, bf16 or fp16), in `shape`.
at::Tensor nf4_dequantize(const Nf4& quantized, at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace trainsuite
