#include "model/nf4.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "core/check_cuda.h"
#include "core/error.h"
#include "model/nf4_kernel.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kBlocksPerTask = 256;

std::int64_t divided_up(std::int64_t n, std::int64_t by) { return (n + by - 1) / by; }

std::int64_t product(at::IntArrayRef shape) {
  std::int64_t n = 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

void check_type(at::ScalarType type) {
  if (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) return;
  fail("nf4: {} values are not supported; use float32, bfloat16 or float16", c10::toString(type));
}

Nf4Type kernel_type(at::ScalarType type) {
  if (type == at::kFloat) return Nf4Type::fp32;
  return type == at::kHalf ? Nf4Type::fp16 : Nf4Type::bf16;
}

/// The largest magnitude, NaN where one is NaN.
template <class T>
float largest(const T* values, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = std::fabs(static_cast<float>(values[i]));
    if (std::isnan(value)) return value;
    most = std::max(most, value);
  }
  return most;
}

/// Indices of one block's values; returns the maximum to store.
template <class T>
float index_block(const T* values, std::int64_t count, std::uint8_t* indices) {
  static const Nf4Tables tables;
  const bool whole = count == kNf4Block;
  float most = largest(values, count);
  const float divisor = most < kNf4LeastScale ? kNf4LeastScale : most;
  const float factor = 1.0f / divisor;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(values[i]);
    const float scaled = whole ? value * factor : value / divisor;
    indices[i] = nf4_index(tables, scaled < -1 ? -1.0f : scaled > 1 ? 1.0f : scaled);
  }
  return whole ? most : divisor;
}

template <class T>
void quantize_blocks(const T* values, std::int64_t count, std::uint8_t* codes, float* absmax) {
  at::parallel_for(
      0, divided_up(count, kNf4Block), kBlocksPerTask, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t block = first; block < last; ++block) {
          const std::int64_t start = block * kNf4Block;
          const std::int64_t length = std::min<std::int64_t>(kNf4Block, count - start);
          // A padded odd value is a zero that was scaled: the code of zero.
          std::uint8_t indices[kNf4Block + 1];
          absmax[block] = index_block(values + start, length, indices);
          if (length % 2 == 1) indices[length] = 7;
          for (std::int64_t i = 0; i < length; i += 2) {
            codes[(start + i) / 2] = static_cast<std::uint8_t>(indices[i] << 4 | indices[i + 1]);
          }
        }
      });
}

std::tuple<at::Tensor, at::Tensor> empty_quantized(const at::Tensor& x) {
  check_type(x.scalar_type());
  return {at::empty({nf4_code_bytes(x.numel())}, x.options().dtype(at::kByte)),
          at::empty({nf4_blocks(x.numel())}, x.options().dtype(at::kFloat))};
}

std::tuple<at::Tensor, at::Tensor> quantize_cpu(const at::Tensor& x) {
  const at::Tensor values = x.contiguous();
  auto [codes, absmax] = empty_quantized(values);
  auto* code = codes.mutable_data_ptr<std::uint8_t>();
  auto* most = absmax.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "nf4_quantize", [&] {
    quantize_blocks(values.const_data_ptr<scalar_t>(), values.numel(), code, most);
  });
  return {codes, absmax};
}

std::tuple<at::Tensor, at::Tensor> quantize_cuda(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor values = x.contiguous();
  auto [codes, absmax] = empty_quantized(values);
  Nf4Work work{};
  work.count = values.numel(), work.type = kernel_type(values.scalar_type());
  work.values = values.const_data_ptr();
  work.codes = codes.mutable_data_ptr<std::uint8_t>();
  work.absmax = absmax.mutable_data_ptr<float>();
  check_cuda(launch_nf4_quantize(work, c10::cuda::getCurrentCUDAStream()), "nf4 quantize kernel");
  return {codes, absmax};
}

std::tuple<at::Tensor, at::Tensor> quantize_meta(const at::Tensor& x) { return empty_quantized(x); }

void check_quantized(const at::Tensor& codes, const at::Tensor& absmax, at::IntArrayRef shape) {
  const std::int64_t count = product(shape);
  if (codes.scalar_type() != at::kByte || absmax.scalar_type() != at::kFloat) {
    fail("nf4_dequantize: codes must be uint8 and maxima float32");
  }
  if (codes.numel() != nf4_code_bytes(count) || absmax.numel() != nf4_blocks(count)) {
    fail("nf4_dequantize: {} bytes of codes and {} maxima do not fit {} values", codes.numel(),
         absmax.numel(), count);
  }
  if (!codes.is_contiguous() || !absmax.is_contiguous() || codes.device() != absmax.device()) {
    fail("nf4_dequantize: codes and maxima must be contiguous and on one device");
  }
}

template <class T>
void dequantize_blocks(const std::uint8_t* codes, const float* absmax, T* out, std::int64_t count) {
  static const Nf4Tables tables;
  at::parallel_for(0, divided_up(count, kNf4Block), kBlocksPerTask,
                   [&](std::int64_t first, std::int64_t last) {
                     const std::int64_t end = std::min(count, last * kNf4Block);
                     for (std::int64_t i = first * kNf4Block; i < end; ++i) {
                       const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
                       out[i] = static_cast<T>(tables.code[code] * absmax[i / kNf4Block]);
                     }
                   });
}

at::Tensor dequantize_cpu(const at::Tensor& codes, const at::Tensor& absmax, at::IntArrayRef shape,
                          at::ScalarType dtype) {
  check_quantized(codes, absmax, shape);
  check_type(dtype);
  at::Tensor out = at::empty(shape, absmax.options().dtype(dtype));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "nf4_dequantize", [&] {
    dequantize_blocks(codes.const_data_ptr<std::uint8_t>(), absmax.const_data_ptr<float>(),
                      out.mutable_data_ptr<scalar_t>(), out.numel());
  });
  return out;
}

at::Tensor dequantize_cuda(const at::Tensor& codes, const at::Tensor& absmax, at::IntArrayRef shape,
                           at::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(codes.device());
  check_quantized(codes, absmax, shape);
  check_type(dtype);
  at::Tensor out = at::empty(shape, absmax.options().dtype(dtype));
  Nf4Work work{};
  work.count = out.numel(), work.type = kernel_type(dtype);
  work.out = out.mutable_data_ptr();
  // The kernel only reads these.
  work.codes = const_cast<std::uint8_t*>(codes.const_data_ptr<std::uint8_t>());
  work.absmax = const_cast<float*>(absmax.const_data_ptr<float>());
  check_cuda(launch_nf4_dequantize(work, c10::cuda::getCurrentCUDAStream()),
             "nf4 dequantize kernel");
  return out;
}

at::Tensor dequantize_meta(const at::Tensor& codes, const at::Tensor&, at::IntArrayRef shape,
                           at::ScalarType dtype) {
  return at::empty(shape, codes.options().dtype(dtype));
}

}  // namespace

std::int64_t nf4_code_bytes(std::int64_t values) { return divided_up(values, 2); }
std::int64_t nf4_blocks(std::int64_t values) { return divided_up(values, kNf4Block); }

Nf4 nf4_quantize(const at::Tensor& x) {
  auto [codes, absmax] = x.is_cuda() ? quantize_cuda(x) : quantize_cpu(x);
  return {codes, absmax};
}

at::Tensor nf4_dequantize(const Nf4& quantized, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto run = quantized.codes.is_cuda() ? dequantize_cuda : dequantize_cpu;
  return run(quantized.codes, nf4_maxima(quantized), shape, dtype);
}

TORCH_LIBRARY_FRAGMENT(trainsuite, m) {
  m.def("nf4_quantize(Tensor x) -> (Tensor, Tensor)");
  m.def("nf4_dequantize(Tensor codes, Tensor absmax, int[] shape, ScalarType dtype) -> Tensor");
}
TORCH_LIBRARY_IMPL(trainsuite, CPU, m) {
  m.impl("nf4_quantize", &quantize_cpu);
  m.impl("nf4_dequantize", &dequantize_cpu);
}
TORCH_LIBRARY_IMPL(trainsuite, CUDA, m) {
  m.impl("nf4_quantize", &quantize_cuda);
  m.impl("nf4_dequantize", &dequantize_cuda);
}
TORCH_LIBRARY_IMPL(trainsuite, Meta, m) {
  m.impl("nf4_quantize", &quantize_meta);
  m.impl("nf4_dequantize", &dequantize_meta);
}

}  // namespace trainsuite
