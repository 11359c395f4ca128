#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "core/error.h"
#include "device/device.h"

namespace trainsuite {

namespace {

/// Errors that a kernel causes, and that are told by some later call.
bool from_a_kernel(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:  // memory, links, the driver
      return false;
  }
}

}  // namespace

std::string lost_context(const std::string& device_name, int cuda_error) {
  const auto error = static_cast<cudaError_t>(cuda_error);
  if (error == cudaSuccess) return "";
  return fmt::format(
      "{} lost its CUDA context: {} ({}){}", device_name, cudaGetErrorString(error),
      cudaGetErrorName(error),
      from_a_kernel(error) ? ", by a kernel launched in this step or an earlier one" : "");
}

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
  return lost_context(device.name, state.get());
}

}  // namespace trainsuite
