#pragma once
// Which elements dropout keeps, shared by CPU and GPU code, and the GPU launcher.
#include "model/counter_hash_kernel.h"

namespace trainsuite {

constexpr std::uint64_t kDropoutKey = 0x64726f706f7574ULL;

struct Dropout {
  std::int64_t elements;
  bool bf16;
  const void* in;
  void* out;
  const std::int64_t* counter;  // on the device
  std::int64_t layer;
  std::uint32_t threshold;  // an element whose 32 bits are below is dropped
  float scale;              // of those kept
};

TRAINSUITE_HOST_DEVICE inline std::uint64_t dropout_key(std::int64_t counter, std::int64_t layer) {
  return mix(mix(kDropoutKey, counter), layer);
}

/// Two elements share a hash.
TRAINSUITE_HOST_DEVICE inline bool dropout_keeps(std::uint64_t key, std::int64_t element,
                                                 std::uint32_t threshold) {
  const std::uint64_t hash = mix(key, element / 2);
  return static_cast<std::uint32_t>(element % 2 == 0 ? hash : hash >> 32) >= threshold;
}

cudaError_t launch_dropout(const Dropout& work, cudaStream_t stream);

}  // namespace trainsuite
