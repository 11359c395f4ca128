#pragma once
// NF4 arithmetic shared by CPU and GPU, and the launchers of the kernels; knows no tensor library.
// Code table: Dettmers et al. 2023, "QLoRA", appendix E. Rounding and edge cases follow
// bitsandbytes 0.50.2 on a CPU: a full block is scaled by the reciprocal of its absolute maximum
// (at least 1e-38), a last incomplete block is divided by it.
#include <cuda_runtime_api.h>

#include <cstdint>

#ifdef __CUDACC__
#define TRAINSUITE_BOTH __host__ __device__
#else
#define TRAINSUITE_BOTH
#endif

namespace trainsuite {

constexpr int kNf4Block = 64;
constexpr float kNf4LeastScale = 1e-38f;

struct Nf4Tables {
  float code[16] = {-1.0f,
                    -0.6961928009986877f,
                    -0.5250730514526367f,
                    -0.39491748809814453f,
                    -0.28444138169288635f,
                    -0.18477343022823334f,
                    -0.09105003625154495f,
                    0.0f,
                    0.07958029955625534f,
                    0.16093020141124725f,
                    0.24611230194568634f,
                    0.33791524171829224f,
                    0.44070982933044434f,
                    0.5626170039176941f,
                    0.7229568362236023f,
                    1.0f};
};

/// Index of the code nearest to `scaled`: the number of midpoints between codes below it. NaN,
/// which is below nothing, gives 15.
TRAINSUITE_BOTH inline std::uint8_t nf4_index(const Nf4Tables& tables, float scaled) {
  std::uint8_t index = 0;
  for (int i = 0; i < 15; ++i) {
    const float midpoint = (tables.code[i] + tables.code[i + 1]) / 2;
    index = static_cast<std::uint8_t>(index + (midpoint >= scaled ? 0 : 1));
  }
  return index;
}

enum class Nf4Type { fp32, bf16, fp16 };

/// Codes two a byte, the first in the upper half; blocks of 64 values share an fp32 maximum.
struct Nf4Work {
  std::int64_t count;   // values
  Nf4Type type;         // of the values
  const void* values;   // [count], when quantizing
  void* out;            // [count], when dequantizing; aligned to 16 bytes
  std::uint8_t* codes;  // [(count + 1) / 2]; aligned to 4 bytes when dequantizing
  float* absmax;        // [(count + 63) / 64]
};
cudaError_t launch_nf4_quantize(const Nf4Work& work, cudaStream_t stream);
cudaError_t launch_nf4_dequantize(const Nf4Work& work, cudaStream_t stream);

}  // namespace trainsuite
