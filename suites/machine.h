#pragma once
// GPUs, their links and the network adapters of every host, and what a rank samples of its GPU.
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/telemetry.h"
#include "launch/world.h"
#include "result/record.h"

namespace trainsuite {

struct Machine {
  TelemetrySource telemetry;       // of this rank
  std::vector<std::string> notes;  // what differs between GPUs, a sentence each
};

/// Collective: looks at every host and adds to `run` the tables gpus, topology and networks, and
/// the attributes telemetry_source ("nvml, driver 580.1" or why there is none on rank 0's host),
/// gpudirect_module and gpu_differences (where there are any).
Machine inspect_machine(World& world, const DeviceInfo& device, RunRecord& run);

}  // namespace trainsuite
