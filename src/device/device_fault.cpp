#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "core/error.h"
#include "device/device.h"

namespace trainsuite {

// In a thread of its own: a device that hangs would hold this one.
std::string device_fault(const DeviceInfo& device, double seconds) {
  if (!device.cuda) return "";
  auto ended = std::make_shared<std::promise<cudaError_t>>();
  auto state = ended->get_future();
  std::thread([ended, ordinal = device.ordinal] {
    const cudaError_t chosen = cudaSetDevice(ordinal);
    ended->set_value(chosen == cudaSuccess ? cudaDeviceSynchronize() : chosen);
  }).detach();
  if (state.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    return fmt::format("{} did not finish its work within {:.3g} s", device.name, seconds);
  }
  const cudaError_t error = state.get();
  return error == cudaSuccess ? "" : fmt::format("{}: {}", device.name, cudaGetErrorString(error));
}

}  // namespace trainsuite
