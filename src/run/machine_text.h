#pragma once
// What a host's GPUs and network adapters are, on the way to rank 0, and what is odd about them.
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// What one host tells beside its HostIdentity.
struct MachineParts {
  std::vector<GpuIdentity> gpus;
  std::vector<GpuLink> topology;
  std::vector<NetworkAdapter> networks;
  bool gpudirect_module = false;  // nvidia_peermem, which RDMA between GPUs and adapters needs
};

/// Binary text (CBOR); NaN survives.
std::string pack(const MachineParts& parts);
MachineParts unpack_machine(const std::string& bytes);

/// Adapters under `system` ("/sys"): InfiniBand and RoCE ports, Ethernet devices with hardware.
std::vector<NetworkAdapter> network_adapters(const std::string& host, const std::string& system);
/// Whether the kernel module that GPUDirect RDMA needs is loaded.
bool has_gpudirect_module(const std::string& system);

/// A sentence for each setting in which the GPUs differ ("power limit differs: 700 W on 3 GPUs,
/// 500 W on node-a GPU 2"), and for each GPU with fewer PCIe lanes than it could have.
std::vector<std::string> gpu_oddities(const std::vector<GpuIdentity>& gpus);

}  // namespace trainsuite
