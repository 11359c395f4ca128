#include "device/memory_gauge.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>

namespace trainsuite {
namespace {

constexpr auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::DeviceIndex index_of(const DeviceInfo& device) {
  return static_cast<c10::DeviceIndex>(device.ordinal);
}

}  // namespace

std::optional<MemoryPeak> MemoryGauge::take() {
  if (!device_.cuda) return std::nullopt;
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto stats = allocator::getDeviceStats(index_of(device_));
  allocator::resetPeakStats(index_of(device_));  // a peak restarts at the bytes now live
  return MemoryPeak{stats.allocated_bytes[aggregate].peak, stats.reserved_bytes[aggregate].peak};
}

void MemoryGauge::clean() {
  if (!device_.cuda) return;
  at::cuda::clearCublasWorkspaces();  // one a stream that ever multiplied, in the allocator
  c10::cuda::CUDACachingAllocator::emptyCache();
}

std::int64_t MemoryGauge::allocated_now() const {
  if (!device_.cuda) return 0;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_of(device_));
  return stats.allocated_bytes[aggregate].current;
}

}  // namespace trainsuite
