// norm_parts.cuh says how rows lie in warps.
#include <type_traits>

#include "model/norm_parts.cuh"
#include "model/rms_norm_kernel.h"

namespace trainsuite {
namespace {

constexpr int kBlocksPerMultiprocessor = 4;

template <class R, class T, int kChunks>
__global__ void __launch_bounds__(kThreads) rms_forward(RmsForward work) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= work.rows) return;
  const int width = static_cast<int>(work.width);
  const std::int64_t first = row * width;
  float v[kChunks][4];
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    load_four(static_cast<const R*>(work.residual) + first + column, v[c]);
    if (work.delta != nullptr) {
      float delta[4];
      load_four(static_cast<const T*>(work.delta) + first + column, delta);
      for (int j = 0; j < 4; ++j) v[c][j] += delta[j];
      R* const sum = static_cast<R*>(work.sum) + first + column;
      store_four(sum, v[c]);
      load_four(sum, v[c]);  // as rounded: backward sees the same values
    }
    for (int j = 0; j < 4; ++j) squares += v[c][j] * v[c][j];
  }
  const float rstd = rsqrtf(warp_sum(squares) / static_cast<float>(width) + work.epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float weight[4];
    load_four(static_cast<const R*>(work.weight) + column, weight);
    for (int j = 0; j < 4; ++j) v[c][j] *= rstd * weight[j];
    store_four(static_cast<T*>(work.normalized) + first + column, v[c]);
  }
  if (threadIdx.x % 32 == 0 && work.rstd != nullptr) work.rstd[row] = rstd;
}

/// Gradients of one row; adds to `partial` the weight's.
template <class R, class T, int kChunks>
__device__ void rms_backward_row(const RmsBackward& work, std::int64_t row,
                                 float (&partial)[kChunks][4]) {
  const int width = static_cast<int>(work.width);
  const std::int64_t first = row * width;
  const float rstd = work.rstd[row];
  float scaled[kChunks][4], standard[kChunks][4];  // upstream * weight, sum * rstd
  float product = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float weight[4], again[4];
    load_four(static_cast<const T*>(work.upstream) + first + column, scaled[c]);
    load_four(static_cast<const R*>(work.sum) + first + column, standard[c]);
    load_four(static_cast<const R*>(work.weight) + column, weight);
    for (int j = 0; j < 4; ++j) {
      again[j] = standard[c][j] * (rstd * weight[j]);  // as forward rounds it
      standard[c][j] *= rstd;
      partial[c][j] += scaled[c][j] * standard[c][j];
      scaled[c][j] *= weight[j];
      product += scaled[c][j] * standard[c][j];
    }
    if (work.normalized != nullptr) {
      store_four(static_cast<T*>(work.normalized) + first + column, again);
    }
  }
  const float mean_product = warp_sum(product) / static_cast<float>(width);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int column = column_of(c);
    if (column >= width) continue;
    float out[4] = {};
    if (work.sum_upstream != nullptr) {
      load_four(static_cast<const R*>(work.sum_upstream) + first + column, out);
    }
    for (int j = 0; j < 4; ++j) {
      out[j] += rstd * (scaled[c][j] - standard[c][j] * mean_product);
    }
    store_four(static_cast<R*>(work.sum_gradient) + first + column, out);
    if (work.delta_gradient != nullptr) {
      store_four(static_cast<T*>(work.delta_gradient) + first + column, out);
    }
  }
}

template <class R, class T, int kChunks>
__global__ void __launch_bounds__(kThreads) rms_backward(RmsBackward work) {
  __shared__ __align__(16) float shared[kChunks * 128];
  float partial[kChunks][4] = {};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       row < work.rows; row += stride) {
    rms_backward_row<R, T, kChunks>(work, row, partial);
  }
  if (work.partials == nullptr) return;
  const int width = static_cast<int>(work.width);
  add_warps<kChunks>(partial, shared, work.partials + static_cast<std::int64_t>(blockIdx.x) * width,
                     width);
}

/// Calls `launch` with R, T and the number of chunks a lane holds, as compile-time constants.
template <class Launch>
void with_types(bool wide_bf16, bool bf16, std::int64_t width, const Launch& launch) {
  const auto with_width = [&](auto wide, auto type) {
    if (width <= 256) return launch(wide, type, std::integral_constant<int, 2>{});
    if (width <= 1024) return launch(wide, type, std::integral_constant<int, 8>{});
    if (width <= 1536) return launch(wide, type, std::integral_constant<int, 12>{});
    return launch(wide, type, std::integral_constant<int, 16>{});
  };
  if (wide_bf16) return with_width(__nv_bfloat16{}, __nv_bfloat16{});
  if (bf16) return with_width(float{}, __nv_bfloat16{});
  return with_width(float{}, float{});
}

}  // namespace

cudaError_t launch_rms_forward(const RmsForward& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((work.rows + kWarps - 1) / kWarps);
  with_types(work.wide_bf16, work.bf16, work.width, [&](auto wide, auto type, auto chunks) {
    rms_forward<decltype(wide), decltype(type), decltype(chunks)::value>
        <<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

int rms_backward_blocks(std::int64_t rows) {
  return blocks_of_rows(rows, kBlocksPerMultiprocessor);
}

cudaError_t launch_rms_backward(const RmsBackward& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const int blocks = rms_backward_blocks(work.rows);
  if (blocks == 0) return cudaErrorNoDevice;
  with_types(work.wide_bf16, work.bf16, work.width, [&](auto wide, auto type, auto chunks) {
    rms_backward<decltype(wide), decltype(type), decltype(chunks)::value>
        <<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

}  // namespace trainsuite
