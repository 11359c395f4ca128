#pragma once
// What is recorded, as plain structs: no MPI, no tensors, no HDF5.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/setting.h"

namespace trainsuite {

/// One dataset row: a value per step (warm-up included), NaN where unknown.
struct Series {
  std::string name;  // "step_seconds"
  std::string unit;  // s, byte, token, 1
  std::vector<double> values;
};

/// What one rank measured in one case.
struct RankRecord {
  int rank = 0;
  std::vector<Series> series;
  Settings facts;                   // scalar results of this rank (setup_seconds, weight hash, ...)
  std::vector<Series> telemetry{};  // a value per sample; sample_seconds says when
};

struct RankIdentity {
  int rank = 0, local_rank = 0;
  std::string host, device_name, uuid, pci_bus_id;
  std::int64_t memory_bytes = 0;
  std::string cores;  // "0-7"
};

struct HostIdentity {
  std::string host, cpu_model, kernel, virtualisation;
  std::int64_t sockets = 0, cores = 0, ram_bytes = 0;
};

/// A GPU of a host, used or not. Unknown texts are empty, unknown numbers NaN.
struct GpuIdentity {
  std::string host;
  std::int64_t gpu = 0;  // the driver's index on that host
  std::string uuid, device_name, pci_bus_id;
  double power_limit_watts = NAN, power_limit_default_watts = NAN;
  std::string ecc, mig, persistence;  // on, off
  std::string compute_mode;           // default, exclusive process, prohibited, ...
  double pcie_generation = NAN, pcie_generation_max = NAN;  // now (idle links may be slower), most
  double pcie_width = NAN, pcie_width_max = NAN;
  double numa_node = NAN;
};

/// How two GPUs of a host are linked: NV#, PIX, PXB, PHB, NODE, SYS.
struct GpuLink {
  std::string host;
  std::int64_t gpu_a = 0, gpu_b = 0;
  std::string link;
};

/// A network adapter of a host.
struct NetworkAdapter {
  std::string host, name, kind;  // kind: InfiniBand, RoCE, Ethernet
  std::string state, rate;       // as the system words them; empty where it does not
  double numa_node = NAN;
};

struct RunRecord {
  std::string created_utc;  // ISO 8601, Z
  std::vector<std::string> argv;
  std::vector<std::string> planned;  // case names, in order, each once
  Settings attributes;               // versions, environment whitelist, Slurm ids, dry_run
  std::vector<RankIdentity> ranks;
  std::vector<HostIdentity> hosts;
  std::vector<GpuIdentity> gpus{};
  std::vector<GpuLink> topology{};
  std::vector<NetworkAdapter> networks{};
};

/// One row: a case, its settings, what every rank measured.
struct CaseRecord {
  std::string suite, name;
  std::int64_t repeat = 0;
  std::string status;                // ok|oom|failed|timeout|skipped
  std::string reason;                // empty when ok
  Settings settings;                 // flags and derived settings
  Settings results;                  // scalar results (summary statistics are derived by readers)
  Settings checks;                   // stored under check/
  std::vector<std::uint8_t> warmup;  // [steps], 1 for a warm-up step
  std::vector<RankRecord> ranks;     // those that took part
};

}  // namespace trainsuite
