#pragma once
// Parts that several kernels share.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace trainsuite {

/// 16 bytes of T as fp32 values and back.
template <class T>
struct Pack;

template <>
struct Pack<float> {
  static constexpr int size = 4;
  static __device__ void load(const uint4& bits, float* v) {
    v[0] = __uint_as_float(bits.x), v[1] = __uint_as_float(bits.y);
    v[2] = __uint_as_float(bits.z), v[3] = __uint_as_float(bits.w);
  }
  static __device__ uint4 store(const float* v) {
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
  }
  static __device__ float exponential(float x) { return expf(x); }
};

__device__ inline void load_bf16_pair(unsigned bits, float* v) {  // the upper half of an fp32
  v[0] = __uint_as_float(bits << 16);
  v[1] = __uint_as_float(bits & 0xffff0000u);
}

__device__ inline unsigned bf16_pair(const float* v) {
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(v[0], v[1]);
  return *reinterpret_cast<const unsigned*>(&rounded);
}

template <>
struct Pack<__nv_bfloat16> {
  static constexpr int size = 8;
  static __device__ void load(const uint4& bits, float* v) {
    load_bf16_pair(bits.x, v), load_bf16_pair(bits.y, v + 2);
    load_bf16_pair(bits.z, v + 4), load_bf16_pair(bits.w, v + 6);
  }
  static __device__ uint4 store(const float* v) {
    return make_uint4(bf16_pair(v), bf16_pair(v + 2), bf16_pair(v + 4), bf16_pair(v + 6));
  }
  // Its error is far below bf16's.
  static __device__ float exponential(float x) { return __expf(x); }
};

/// Four neighbouring values of T as fp32 and back; aligned to four values.
__device__ inline void load_four(const float* from, float* v) {
  const float4 bits = *reinterpret_cast<const float4*>(from);
  v[0] = bits.x, v[1] = bits.y, v[2] = bits.z, v[3] = bits.w;
}
__device__ inline void load_four(const __nv_bfloat16* from, float* v) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  load_bf16_pair(bits.x, v), load_bf16_pair(bits.y, v + 2);
}
__device__ inline void store_four(float* to, const float* v) {
  *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
}
__device__ inline void store_four(__nv_bfloat16* to, const float* v) {
  *reinterpret_cast<uint2*>(to) = make_uint2(bf16_pair(v), bf16_pair(v + 2));
}

/// kCount neighbouring values of T as fp32 and back, 16 bytes at a time; four bf16 values 8 bytes.
template <int kCount, class T>
__device__ inline void load_values(const T* from, float* v) {
  if constexpr (kCount < Pack<T>::size) {
    load_four(from, v);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += Pack<T>::size) {
      Pack<T>::load(*reinterpret_cast<const uint4*>(from + i), v + i);
    }
  }
}
template <int kCount, class T>
__device__ inline void store_values(T* to, const float* v) {
  if constexpr (kCount < Pack<T>::size) {
    store_four(to, v);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += Pack<T>::size) {
      *reinterpret_cast<uint4*>(to + i) = Pack<T>::store(v + i);
    }
  }
}

/// The warp's sum, the same bits in every lane.
__device__ inline float warp_sum(float mine) {
  for (int offset = 16; offset > 0; offset /= 2) {
    mine += __shfl_xor_sync(0xffffffffu, mine, offset);
  }
  return mine;
}

}  // namespace trainsuite
