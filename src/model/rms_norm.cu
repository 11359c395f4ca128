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

/// What backward reads of a row, eight values a lane and pack.
template <class R, class T, int kPacks>
struct BackwardRow {
  Eight<T> upstream[kPacks];
  Eight<R> sum[kPacks], sum_upstream[kPacks];

  /// All loads at once: the row then costs one trip to memory.
  __device__ void load(const RmsBackward& work, std::int64_t first) {
    const int width = static_cast<int>(work.width);
#pragma unroll
    for (int c = 0; c < kPacks; ++c) {
      const int column = column_of<8>(c);
      if (column >= width) continue;
      upstream[c].load(work.upstream, first + column);
      sum[c].load(work.sum, first + column);
      if (work.sum_upstream != nullptr) sum_upstream[c].load(work.sum_upstream, first + column);
    }
  }

  /// Of one pack in fp32, beside the weight's.
  __device__ void values(const RmsBackward& work, int pack, float (&of_upstream)[8],
                         float (&of_sum)[8], float (&weight)[8]) const {
    upstream[pack].values(of_upstream), sum[pack].values(of_sum);
    load_values<8>(static_cast<const R*>(work.weight) + column_of<8>(pack), weight);
  }
};

/// The lane's share of sum(upstream x weight x sum x rstd); adds to `partial` the weight's
/// gradient.
template <class R, class T, int kPacks>
__device__ float rms_backward_product(const RmsBackward& work, const BackwardRow<R, T, kPacks>& row,
                                      float rstd, float (&partial)[kPacks][8]) {
  float product = 0;
#pragma unroll
  for (int c = 0; c < kPacks; ++c) {
    if (column_of<8>(c) >= static_cast<int>(work.width)) continue;
    float upstream[8], sum[8], weight[8];
    row.values(work, c, upstream, sum, weight);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float gradient = upstream[j] * (sum[j] * rstd);
      partial[c][j] += gradient;
      product += gradient * weight[j];
    }
  }
  return product;
}

template <class R, class T, int kPacks>
__device__ void rms_backward_write(const RmsBackward& work, const BackwardRow<R, T, kPacks>& row,
                                   std::int64_t first, float rstd, float mean_product) {
#pragma unroll
  for (int c = 0; c < kPacks; ++c) {
    const int column = column_of<8>(c);
    if (column >= static_cast<int>(work.width)) continue;
    float upstream[8], sum[8], weight[8], out[8] = {}, again[8];
    row.values(work, c, upstream, sum, weight);
    if (work.sum_upstream != nullptr) row.sum_upstream[c].values(out);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      again[j] = sum[j] * (rstd * weight[j]);  // as forward rounds it
      out[j] += rstd * (upstream[j] * weight[j] - sum[j] * rstd * mean_product);
    }
    if (work.normalized != nullptr)
      store_values<8>(static_cast<T*>(work.normalized) + first + column, again);
    store_values<8>(static_cast<R*>(work.sum_gradient) + first + column, out);
    if (work.delta_gradient != nullptr)
      store_values<8>(static_cast<T*>(work.delta_gradient) + first + column, out);
  }
}

/// A warp takes a row: reads each value once, holds it as it lies in memory.
template <class R, class T, int kPacks>
__global__ void __launch_bounds__(kThreads) rms_backward(RmsBackward work) {
  __shared__ __align__(16) float shared[kPacks * 256];
  float partial[kPacks][8] = {};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
       row < work.rows; row += stride) {
    BackwardRow<R, T, kPacks> values;
    values.load(work, row * work.width);
    const float rstd = work.rstd[row];
    const float product = warp_sum(rms_backward_product(work, values, rstd, partial));
    rms_backward_write(work, values, row * work.width, rstd,
                       product / static_cast<float>(work.width));
  }
  if (work.partials == nullptr) return;
  add_warps(partial, shared, work.partials + static_cast<std::int64_t>(blockIdx.x) * work.width,
            static_cast<int>(work.width));
}

/// Calls `launch` with R, T and the number of 256 columns a warp takes, as compile-time constants.
template <class Launch>
void with_types(bool wide_bf16, bool bf16, std::int64_t width, const Launch& launch) {
  const auto with_width = [&](auto wide, auto type) {
    if (width <= 256) return launch(wide, type, std::integral_constant<int, 1>{});
    if (width <= 1024) return launch(wide, type, std::integral_constant<int, 4>{});
    if (width <= 1536) return launch(wide, type, std::integral_constant<int, 6>{});
    return launch(wide, type, std::integral_constant<int, 8>{});
  };
  if (wide_bf16) return with_width(__nv_bfloat16{}, __nv_bfloat16{});
  if (bf16) return with_width(float{}, __nv_bfloat16{});
  return with_width(float{}, float{});
}

}  // namespace

cudaError_t launch_rms_forward(const RmsForward& work, cudaStream_t stream) {
  if (work.rows == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((work.rows + kWarps - 1) / kWarps);
  with_types(work.wide_bf16, work.bf16, work.width, [&](auto wide, auto type, auto packs) {
    rms_forward<decltype(wide), decltype(type), 2 * decltype(packs)::value>
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
  with_types(work.wide_bf16, work.bf16, work.width, [&](auto wide, auto type, auto packs) {
    rms_backward<decltype(wide), decltype(type), decltype(packs)::value>
        <<<blocks, kThreads, 0, stream>>>(work);
  });
  return cudaGetLastError();
}

}  // namespace trainsuite
