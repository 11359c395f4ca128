#pragma once
// The hash itself, shared by CPU and GPU code, and the GPU launchers; knows no tensor library.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define TRAINSUITE_HOST_DEVICE __host__ __device__
#else
#define TRAINSUITE_HOST_DEVICE
#endif

namespace trainsuite {

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64 bits.
TRAINSUITE_HOST_DEVICE inline std::uint64_t mix(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

TRAINSUITE_HOST_DEVICE inline std::uint64_t mix(std::uint64_t key, std::int64_t counter) {
  return mix(key ^ static_cast<std::uint64_t>(counter));
}

// Keys keep tokens, weights and hashes of tensors apart under one seed.
constexpr std::uint64_t kTokenKey = 0x746f6b656e73ULL;
constexpr std::uint64_t kParameterKey = 0x706172616d73ULL;
constexpr std::uint64_t kLengthKey = 0x6c656e677468ULL;

struct TokenRange {
  std::int64_t seed, step, first_example, examples, length, vocabulary;
};

/// Token `index` (row-major) of the range. Multiply-shift of 32 bits: a value's probability is off
/// by at most vocabulary / 2^32 of itself.
TRAINSUITE_HOST_DEVICE inline std::int64_t token_at(const TokenRange& range, std::int64_t index) {
  const std::uint64_t step_key = mix(mix(kTokenKey, range.seed), range.step);
  const std::uint64_t example_key = mix(step_key, range.first_example + index / range.length);
  const std::uint64_t hash = mix(example_key, index % range.length);
  return static_cast<std::int64_t>(((hash >> 32) * static_cast<std::uint64_t>(range.vocabulary)) >>
                                   32);
}

/// Four 16-bit uniforms, summed and centred: mean 0, deviation sqrt((2^32 - 1) / 3).
TRAINSUITE_HOST_DEVICE inline std::int32_t centred_sum(std::uint64_t hash) {
  const std::uint64_t sum =
      (hash & 0xffff) + ((hash >> 16) & 0xffff) + ((hash >> 32) & 0xffff) + (hash >> 48);
  return static_cast<std::int32_t>(sum) - 2 * 0xffff;
}

/// `factor` is the wanted deviation over that of centred_sum. One rounding: the same bits anywhere.
TRAINSUITE_HOST_DEVICE inline float normal_at(std::uint64_t key, std::int64_t element,
                                              float factor) {
  return static_cast<float>(centred_sum(mix(key, element))) * factor;
}

TRAINSUITE_HOST_DEVICE inline std::uint64_t parameter_key(std::int64_t seed,
                                                          std::int64_t parameter) {
  return mix(mix(kParameterKey, seed), parameter);
}

/// Bytes 8 x index ... as one word, zeros beyond the end.
TRAINSUITE_HOST_DEVICE inline std::uint64_t word_at(const unsigned char* data, std::int64_t bytes,
                                                    std::int64_t index) {
  const std::int64_t first = 8 * index;
  if (first + 8 <= bytes && reinterpret_cast<std::uintptr_t>(data) % 8 == 0) {
    return *reinterpret_cast<const std::uint64_t*>(data + first);
  }
  std::uint64_t word = 0;
  for (std::int64_t i = first; i < bytes && i < first + 8; ++i) {
    word |= static_cast<std::uint64_t>(data[i]) << (8 * (i - first));
  }
  return word;
}

/// One word's share of a tensor's hash: shares are added modulo 2^64, in any order.
TRAINSUITE_HOST_DEVICE inline std::uint64_t hash_share(std::uint64_t word, std::int64_t index) {
  return mix(word ^ mix(0, index));
}

TRAINSUITE_HOST_DEVICE inline std::uint64_t length_share(std::int64_t bytes) {
  return mix(kLengthKey, bytes);
}

cudaError_t launch_random_tokens(const TokenRange& range, std::int64_t* out, cudaStream_t stream);
cudaError_t launch_initial_parameter(std::uint64_t key, float factor, std::int64_t elements,
                                     float* out, cudaStream_t stream);
/// Adds the shares of `bytes` bytes at `data` to *out, which holds 0.
cudaError_t launch_tensor_hash(const void* data, std::int64_t bytes, std::int64_t* out,
                               cudaStream_t stream);

}  // namespace trainsuite
