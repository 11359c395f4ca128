#include "device/device.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "core/check_cuda.h"
#include "core/error.h"

namespace trainsuite {
namespace {

constexpr double bytes_per_gib = 1024.0 * 1024.0 * 1024.0;

struct GpuCount {
  int count = 0;
  cudaError_t state = cudaSuccess;
};

GpuCount count_gpus() {
  GpuCount gpus;
  gpus.state = cudaGetDeviceCount(&gpus.count);
  if (gpus.state != cudaSuccess) {
    gpus.count = 0;
    (void)cudaGetLastError();  // no driver is an answer, not an error of a later call
  }
  return gpus;
}

std::string why_no_gpu(cudaError_t state) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && *visible == '\0') {
    return "CUDA_VISIBLE_DEVICES is empty; unset it or list the GPUs to use";
  }
  if (visible != nullptr && state == cudaErrorNoDevice) {
    return fmt::format("CUDA_VISIBLE_DEVICES={} names no GPU of this host", visible);
  }
  return fmt::format("the driver says \"{}\"; run on a GPU machine or with --device cpu",
                     cudaGetErrorString(state));
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

DeviceInfo describe_gpu(int ordinal) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  DeviceInfo info;
  info.cuda = true;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.uuid = uuid_text(properties.uuid);
  info.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                properties.pciBusID, properties.pciDeviceID);
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  info.multiprocessors = properties.multiProcessorCount;
  info.compute_capability = properties.major * 10 + properties.minor;
  return info;
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceInfo describe_cpu() {
  DeviceInfo info;
  info.name = cpu_model();
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  return info;
}

}  // namespace

c10::Device DeviceInfo::torch_device() const {
  if (!cuda) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(ordinal));
}

int visible_gpu_count() { return count_gpus().count; }

int choose_ordinal(int gpu_count, int local_rank, int local_size, bool oversubscribe) {
  if (gpu_count == 1) return 0;
  if (oversubscribe) return local_rank % gpu_count;
  if (local_size > gpu_count) {
    fail<UsageError>(
        "{} ranks on this host, but it has {} GPUs: start at most {} ranks a host, or let them "
        "share with --comm mpi --oversubscribe",
        local_size, gpu_count, gpu_count);
  }
  return local_rank;
}

DeviceInfo choose_device(const std::string& requested, int local_rank, int local_size,
                         bool oversubscribe) {
  if (requested == "cpu") return describe_cpu();
  if (requested != "auto" && requested != "cuda") {
    fail<UsageError>("--device {}: unknown; known are auto, cuda, cpu", requested);
  }
  const GpuCount gpus = count_gpus();
  if (gpus.count > 0) {
    return describe_gpu(choose_ordinal(gpus.count, local_rank, local_size, oversubscribe));
  }
  if (requested == "auto") return describe_cpu();
  fail<UsageError>("--device cuda: no GPU is visible: {}", why_no_gpu(gpus.state));
}

void check_unique_gpus(const std::vector<std::pair<std::string, std::string>>& host_uuid,
                       bool oversubscribe) {
  if (oversubscribe) return;
  std::map<std::pair<std::string, std::string>, size_t> holders;
  for (size_t r = 0; r < host_uuid.size(); ++r) {
    if (host_uuid[r].second.empty()) continue;
    const auto [holder, is_first] = holders.emplace(host_uuid[r], r);
    if (is_first) continue;
    fail<UsageError>(
        "ranks {} and {} share GPU {} of host {}: start one rank a GPU, or let them share with "
        "--comm mpi --oversubscribe",
        holder->second, r, host_uuid[r].second, host_uuid[r].first);
  }
}

std::int64_t free_memory_bytes(const DeviceInfo& device) {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(
      static_cast<c10::DeviceIndex>(device.ordinal));
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<std::int64_t>(free) + stats.reserved_bytes[all].current -
         stats.allocated_bytes[all].current;
}

void activate_device(const DeviceInfo& device, std::optional<double> limit_gib) {
  if (!device.cuda) {
    if (limit_gib) fail<UsageError>("--memory-limit {}: only a GPU has one", *limit_gib);
    return;
  }
  check_cuda(cudaSetDevice(device.ordinal), "cudaSetDevice");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  if (!limit_gib) return;
  const double fraction = *limit_gib * bytes_per_gib / static_cast<double>(device.memory_bytes);
  if (fraction > 1) {
    fail<UsageError>("--memory-limit {}: the {} has {:.1f} GiB", *limit_gib, device.name,
                     static_cast<double>(device.memory_bytes) / bytes_per_gib);
  }
  c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction,
                                                     static_cast<c10::DeviceIndex>(device.ordinal));
}

}  // namespace trainsuite
