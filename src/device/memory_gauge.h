#pragma once
// Peaks of the device allocator. A CPU has none, so its values are absent.
#include <cstdint>
#include <optional>
#include <string>

#include "device/device.h"

namespace trainsuite {

struct MemoryPeak {
  std::int64_t allocated_bytes = 0;
  std::int64_t reserved_bytes = 0;
};

class MemoryGauge {
 public:
  explicit MemoryGauge(const DeviceInfo& device) : device_(device) {}
  /// Peak since the last call (or construction), then starts a new interval whose floor is the
  /// bytes now live. Host side only. Absent on a CPU.
  std::optional<MemoryPeak> take();
  /// Frees what libraries keep for later and returns unused blocks to the device, so that a case
  /// starts as if it were the first. The device must be idle.
  void clean();
  std::int64_t allocated_now() const;

 private:
  DeviceInfo device_;
};

}  // namespace trainsuite
