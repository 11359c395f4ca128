#include "machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "core/text.h"
#include "device/cores.h"
#include "run/machine_text.h"

namespace trainsuite {
namespace {

MachineParts parts_of_host(const std::string& host, const Nvml* nvml) {
  MachineParts parts;
  parts.networks = network_adapters(host, "/sys");
  parts.gpudirect_module = has_gpudirect_module("/sys");
  for (int i = 0; nvml != nullptr && i < nvml->count(); ++i) {
    auto gpu = nvml->identity(i);
    gpu.host = host;
    if (const int node = numa_node_of(gpu.pci_bus_id); node >= 0) gpu.numa_node = node;
    for (int j = i + 1; j < nvml->count(); ++j) {
      if (const auto link = nvml->link(i, j); !link.empty()) {
        parts.topology.push_back({host, i, j, link});
      }
    }
    parts.gpus.push_back(std::move(gpu));
  }
  return parts;
}

/// The ranks that use this rank's GPU, which of them counts its energy, and its index in NVML.
TelemetrySource source_of(World& world, const DeviceInfo& device,
                          std::shared_ptr<const Nvml> nvml) {
  TelemetrySource source;
  const auto mine = world.host() + "/" + device.uuid + "/";
  int first = -1;
  const auto all = world.all_gather(mine + std::to_string(getpid()));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].starts_with(mine)) continue;
    source.own_processes.push_back(std::atoi(all[rank].c_str() + mine.size()));
    if (first < 0) first = static_cast<int>(rank);
  }
  source.counts_energy = first == world.rank();
  if (nvml && device.cuda) source.gpu = nvml->index_of(device.uuid);
  source.nvml = std::move(nvml);
  return source;
}

}  // namespace

Machine inspect_machine(World& world, const DeviceInfo& device, RunRecord& run) {
  Machine machine;
  std::string reason;
  const auto nvml = Nvml::open(reason);
  machine.telemetry = source_of(world, device, nvml);
  const auto parts = world.local_rank() == 0 ? pack(parts_of_host(world.host(), nvml.get())) : "";
  bool gpudirect = true;
  for (const auto& text : world.all_gather(parts)) {
    if (text.empty()) continue;
    const auto host = unpack_machine(text);
    run.gpus.insert(run.gpus.end(), host.gpus.begin(), host.gpus.end());
    run.topology.insert(run.topology.end(), host.topology.begin(), host.topology.end());
    run.networks.insert(run.networks.end(), host.networks.begin(), host.networks.end());
    gpudirect = gpudirect && host.gpudirect_module;
  }
  run.attributes.push_back({"gpudirect_module", gpudirect});
  run.attributes.push_back({"telemetry_source", nvml ? "nvml, driver " + nvml->driver_version()
                                                     : "host only: " + reason});
  machine.notes = gpu_oddities(run.gpus);
  if (!machine.notes.empty()) {
    run.attributes.push_back({"gpu_differences", join(machine.notes, "; ")});
  }
  return machine;
}

}  // namespace trainsuite
