#pragma once
// Which device this rank computes on, and what it is.
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainsuite {

/// One line of the GPU table: feeds default architectures, MFU and prices.
struct GpuModel {
  std::string driver_name;   // as the driver reports it
  std::string page_name;     // as pages and price lists call it
  int architecture;          // 80 for sm_80
  double nominal_gb;         // marketing size, 1e9 bytes
  double dense_bf16_tflops;  // listed peak without sparsity
};
const std::vector<GpuModel>& gpu_table();
/// The entry of exactly this name: a MIG slice, a laptop's or a regional variant is another GPU,
/// with another peak. None for an unknown GPU.
std::optional<GpuModel> find_gpu(const std::string& driver_name);

struct DeviceInfo {
  bool cuda = false;
  int ordinal = -1;               // CUDA ordinal, -1 on a CPU
  std::string name;               // GPU name as the driver gives it, or the CPU model
  std::string uuid;               // empty on a CPU
  std::string pci_bus_id;         // empty on a CPU
  std::int64_t memory_bytes = 0;  // usable device memory, or the host's RAM
  int multiprocessors = 0;
  int compute_capability = 0;  // 90 for sm_90
  c10::Device torch_device() const;
};

/// Number of GPUs this process may use, 0 where there is no driver.
int visible_gpu_count();

/// Picks by local rank; `requested` is auto|cuda|cpu. Throws UsageError where it cannot be had
/// (cuda asked for and no GPU visible; more local ranks than GPUs without `oversubscribe`).
DeviceInfo choose_device(const std::string& requested, int local_rank, int local_size,
                         bool oversubscribe);

/// The CUDA ordinal of a rank: 0 where the process sees one GPU (its launcher may have given it
/// its own), else the local rank; modulo the GPUs with `oversubscribe`. Throws UsageError when
/// there are fewer GPUs than local ranks.
int choose_ordinal(int gpu_count, int local_rank, int local_size, bool oversubscribe);

/// host_uuid[r] is rank r's host and GPU (empty UUID: a CPU). Throws UsageError naming the first
/// two ranks that share a GPU, unless `oversubscribe`.
void check_unique_gpus(const std::vector<std::pair<std::string, std::string>>& host_uuid,
                       bool oversubscribe);

/// Makes the device current and caps its allocator at `limit_gib`, if given. Throws UsageError
/// for a limit on a CPU or above the device's memory.
void activate_device(const DeviceInfo& device, std::optional<double> limit_gib);

/// Bytes of the active GPU that are free now, what our allocator holds unused included.
std::int64_t free_memory_bytes(const DeviceInfo& device);

/// Why the device is of no more use to this process (a kernel that trapped, a lost GPU, work that
/// does not end within `seconds`); empty where it is fine, and on a CPU.
std::string device_fault(const DeviceInfo& device, double seconds);

/// The same of an error code of the CUDA runtime that the device answers with and goes on answering
/// with; empty for cudaSuccess. Whatever call saw it first is seldom the one that caused it.
std::string lost_context(const std::string& device_name, int cuda_error);

/// How this rank was bound to cores, and what was done about it.
struct Affinity {
  std::vector<int> cores;  // cores this rank runs on
  std::string source;      // "mpi default replaced", "launcher" (kept), "unbound"
  int torch_threads = 1;
};
/// Undoes mpirun's one-core default by giving each rank its share of the host's cores inside the
/// cpuset and near its GPU; keeps an explicit --bind-to or --cpu-bind. Sets torch's threads (one a
/// physical core of the share; OMP_NUM_THREADS where the user set it). Before torch computes.
Affinity apply_affinity(const DeviceInfo& device, int local_rank, int local_size);

}  // namespace trainsuite
