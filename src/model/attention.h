#pragma once
// Which scaled_dot_product_attention kernel runs.
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trainsuite {

enum class AttentionKernel { automatic, cudnn, flash, efficient, math };

/// "automatic" (also "auto", "default", and "naive", attention written out), "cudnn", "flash",
/// "efficient", "math". Throws Error for another name.
AttentionKernel attention_kernel(const std::string& name);

/// From now on the whole process uses exactly this kernel; attention it cannot do is an error.
/// automatic: PyTorch's own choice among all.
void use_attention(AttentionKernel kernel);

/// The kernels that fastest_attention times, best expected first; {"default"} on a CPU.
std::vector<std::string> attention_candidates(bool cuda);

/// The name of the candidate whose causal forward and backward pass takes the least device time,
/// on random data; "default" on a CPU. Candidates that throw are out; Error where all do.
/// Leaves the kernel in use as it was. Waits for the device.
std::string fastest_attention(c10::Device device, c10::ScalarType dtype, std::int64_t batch,
                              std::int64_t heads, std::int64_t key_value_heads,
                              std::int64_t sequence, std::int64_t head_dim);

}  // namespace trainsuite
