#pragma once
// Weights and tokens from counter-based hashes: any rank, device and language gets the same bits
// without a stream of states. Registered as torch ops (trainsuite::random_tokens,
// trainsuite::initial_parameter), so the PyTorch twins share them.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainsuite {

/// ids [examples, length] int64 in [0, vocabulary), on `device`, of the global examples
/// first_example ... of optimizer step `step`. Bit-equal on CPU and CUDA.
at::Tensor random_tokens(std::int64_t seed, std::int64_t step, std::int64_t first_example,
                         std::int64_t examples, std::int64_t length, std::int64_t vocabulary,
                         at::Device device);

/// Fills `out` (fp32, contiguous) with approximately normal values of mean 0 and deviation `std`:
/// the centred sum of four 16-bit uniforms of a hash of (seed, parameter, element), exact in
/// integers up to one final scaling, so bit-equal on CPU and CUDA. Bounded at 3.46 deviations.
void fill_initial_parameter_(at::Tensor& out, std::int64_t seed, std::int64_t parameter,
                             double std);

/// A 64-bit order-sensitive hash of a tensor's bytes (int64 scalar on the tensor's device, no
/// synchronisation): equal replicas have equal hashes. Bit-equal on CPU and CUDA.
at::Tensor tensor_hash(const at::Tensor& tensor);

}  // namespace trainsuite
