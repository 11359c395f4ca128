#pragma once
// NF4 storage of frozen matrices: 4-bit codes in blocks of 64 values with an fp32 absolute maximum.
#include <ATen/core/Tensor.h>

namespace trainsuite {

/// codes: uint8 [(values + 1) / 2], two codes a byte, the first in the upper half.
/// absmax: fp32 [(values + 63) / 64]. 4.5 bits a value.
struct Nf4 {
  at::Tensor codes, absmax;
};

/// The values of x (fp32, bf16 or fp16, any shape and strides) in row-major order. Bit-equal to
/// bitsandbytes 0.50.2 on a CPU. A block of zeros gives zeros; a block with NaN or infinity has
/// that as maximum, and NaN comes back for all of it.
Nf4 nf4_quantize(const at::Tensor& x);

/// code x maximum, rounded once to `dtype` (fp32, bf16 or fp16), in `shape`.
at::Tensor nf4_dequantize(const Nf4& quantized, at::IntArrayRef shape, at::ScalarType dtype);

}  // namespace trainsuite
