// norm_parts.cuh says how rows lie in warps.
#include <type_traits>

#include "model/layer_norm_kernel.h"
#include "model/norm_parts.cuh"

namespace trainsuite {
namespace {

constexpr int kBlocksPerMultiprocessor = 2;  // what the backward kernel's registers allow

template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads) norm_forward(NormForward work) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= work.rows) return;
  const int width = static_cast<int>(work.width);
  const std::int64_t first = row * width;
  float v[kChunks][4];
  float total = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    load_four(work.residual + first + column, v[c]);
    if (work.delta != nullptr) {
      float delta[4], bias[4];
      load_four(static_cast<const T*>(work.delta) + first + column, delta);
      load_four(static_cast<const T*>(work.delta_bias) + column, bias);
      for (int j = 0; j < 4; ++j) v[c][j] += delta[j] + bias[j];
      store_four(work.sum + first + column, v[c]);
    }
    for (int j = 0; j < 4; ++j) total += v[c][j];
  }
  const float mean = warp_sum(total) / static_cast<float>(width);
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (column_of(c) >= width) continue;
    for (int j = 0; j < 4; ++j) squares += (v[c][j] - mean) * (v[c][j] - mean);
  }
  const float rstd = rsqrtf(warp_sum(squares) / static_cast<float>(width) + work.epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float weight[4], out[4];
    load_four(work.weight + column, weight);
    load_four(work.bias + column, out);
    for (int j = 0; j < 4; ++j) out[j] += (v[c][j] - mean) * rstd * weight[j];
    store_four(static_cast<T*>(work.normalized) + first + column, out);
  }
  if (threadIdx.x % 32 == 0) work.mean[row] = mean, work.rstd[row] = rstd;
}

/// Sums over rows of one lane's columns.
template <int kChunks>
struct Partial {
  float weight[kChunks][4] = {}, bias[kChunks][4] = {}, delta_bias[kChunks][4] = {};
};

/// Gradients of one row; adds to `partial` what is summed over rows.
template <class T, int kChunks>
__device__ void norm_backward_row(const NormBackward& work, std::int64_t row,
                                  Partial<kChunks>& partial) {
  const int width = static_cast<int>(work.width);
  const std::int64_t first = row * width;
  const float mean = work.mean[row], rstd = work.rstd[row];
  float scaled[kChunks][4];  // upstream * weight
  float standard[kChunks][4];
  float total = 0, product = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float weight[4];
    load_four(static_cast<const T*>(work.upstream) + first + column, scaled[c]);
    load_four(work.sum + first + column, standard[c]);
    load_four(work.weight + column, weight);
    for (int j = 0; j < 4; ++j) {
      standard[c][j] = (standard[c][j] - mean) * rstd;
      partial.weight[c][j] += scaled[c][j] * standard[c][j];
      partial.bias[c][j] += scaled[c][j];
      scaled[c][j] *= weight[j];
      total += scaled[c][j];
      product += scaled[c][j] * standard[c][j];
    }
  }
  const float mean_total = warp_sum(total) / static_cast<float>(width);
  const float mean_product = warp_sum(product) / static_cast<float>(width);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float out[4] = {};
    if (work.sum_upstream != nullptr) load_four(work.sum_upstream + first + column, out);
    for (int j = 0; j < 4; ++j) {
      out[j] += rstd * (scaled[c][j] - mean_total - standard[c][j] * mean_product);
      partial.delta_bias[c][j] += out[j];
    }
    store_four(work.sum_gradient + first + column, out);
    if (work.delta_gradient != nullptr) {
      store_four(static_cast<T*>(work.delta_gradient) + first + column, out);
    }
  }
}

template <class T, int kChunks>
__global__ void __launch_bounds__(kThreads) norm_backward(NormBackward work) {
  __shared__ __align__(16) float shared[kChunks * 128];
  Partial<kChunks> partial;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       row < work.rows; row += stride) {
    norm_backward_row<T, kChunks>(work, row, partial);
  }
  const int width = static_cast<int>(work.width);
  float* out = work.partials + static_cast<std::int64_t>(blockIdx.x) * 3 * width;
  add_warps<kChunks>(partial.weight, shared, out, width);
  add_warps<kChunks>(partial.bias, shared, out + width, width);
  add_warps<kChunks>(partial.delta_bias, shared, out + 2 * width, width);
}

/// Calls `launch` with T and the number of chunks a lane holds, as compile-time constants.
template <class Launch>
void with_types(bool bf16, std::int64_t width, const Launch& launch) {
  const auto with_width = [&](auto type) {
    if (width <= 256) return launch(type, std::integral_constant<int, 2>{});
    if (width <= 768) return launch(type, std::integral_constant<int, 6>{});
    if (width <= 1024) return launch(type, std::integral_constant<int, 8>{});
    return launch(type, std::integral_constant<int, 16>{});
  };
  if (bf16) return with_width(__nv_bfloat16{});
  return with_width(float{});
}

}  // namespace

cudaError_t launch_norm_forward(const NormForward& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((work.rows + kWarps - 1) / kWarps);
  with_types(work.bf16, work.width, [&](auto type, auto chunks) {
    norm_forward<decltype(type), decltype(chunks)::value><<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

int norm_backward_blocks(std::int64_t rows) {
  return blocks_of_rows(rows, kBlocksPerMultiprocessor);
}

cudaError_t launch_norm_backward(const NormBackward& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const int blocks = norm_backward_blocks(work.rows);
  if (blocks == 0) return cudaErrorNoDevice;
  with_types(work.bf16, work.width, [&](auto type, auto chunks) {
    norm_backward<decltype(type), decltype(chunks)::value><<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

}  // namespace trainsuite
