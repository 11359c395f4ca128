#include <ATen/Parallel.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "device/cores.h"
#include "device/device.h"

namespace trainsuite {
namespace {

// NUMA node of each local rank's GPU. Unknown where the launcher shows each rank its own GPU only.
std::vector<int> nodes_of_ranks(const DeviceInfo& device, int local_rank, int local_size) {
  std::vector<int> nodes(static_cast<size_t>(local_size), -1);
  if (!device.cuda) return nodes;
  const int gpus = visible_gpu_count();
  if (gpus == 1 && local_size > 1) return nodes;
  for (int r = 0; r < local_size; ++r) {
    char pci_bus_id[32] = "";
    const int ordinal = r == local_rank ? device.ordinal : r % gpus;
    if (cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, ordinal) != cudaSuccess) continue;
    std::string id = pci_bus_id;
    std::transform(id.begin(), id.end(), id.begin(), [](char c) { return std::tolower(c); });
    nodes[static_cast<size_t>(r)] = numa_node_of(id);
  }
  return nodes;
}

std::vector<int> cpus_of(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// Logical CPUs that all ranks of this host may use together. Slurm's step daemon itself may run on
// more than the job owns.
std::vector<int> host_cpus(const std::vector<int>& mine, const Launcher& launcher) {
  return launcher.cpus.empty() ? mine : launcher.cpus;
}

int fair_threads(const std::vector<int>& mine, const Launcher& launcher, int local_size) {
  auto cores = static_cast<int>(physical_cores(host_cpus(mine, launcher)).size());
  if (const char* slurm = std::getenv("SLURM_CPUS_ON_NODE")) {
    if (const int cpus = std::atoi(slurm); cpus > 0) cores = std::min(cores, cpus);
  }
  const auto own_cores = static_cast<int>(physical_cores(mine).size());
  return std::max(1, std::min(own_cores, cores / local_size));
}

int set_torch_threads(int threads) {
  // The user's own number is kept: torch has read it.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(threads);
  static std::once_flag once;  // torch takes it once, before its pool starts
  std::call_once(once, [] { at::set_num_interop_threads(1); });
  return at::get_num_threads();
}

}  // namespace

Affinity apply_affinity(const DeviceInfo& device, int local_rank, int local_size) {
  Affinity affinity;
  affinity.cores = allowed_cpus(0);
  const Launcher launcher = find_launcher();
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  const Binder binder = who_bound(affinity.cores, launcher, environment);
  if (binder == Binder::mpi_default) {
    const auto share = share_of_cores(physical_cores(launcher.cpus),
                                      nodes_of_ranks(device, local_rank, local_size), local_rank);
    affinity.cores = cpus_of(share);
    bind_all_threads(affinity.cores);
  }
  affinity.source = binder == Binder::nobody        ? "unbound"
                    : binder == Binder::mpi_default ? "mpi default replaced"
                                                    : "launcher";
  affinity.torch_threads = set_torch_threads(fair_threads(affinity.cores, launcher, local_size));
  return affinity;
}

}  // namespace trainsuite
