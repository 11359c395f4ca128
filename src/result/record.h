#pragma once
// What is recorded, as plain structs: no MPI, no tensors, no HDF5.
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
  Settings facts;  // scalar results of this rank (setup_seconds, weight hash, ...)
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

struct RunRecord {
  std::string created_utc;  // ISO 8601, Z
  std::vector<std::string> argv;
  std::vector<std::string> planned;  // case names, in order, each once
  Settings attributes;               // versions, environment whitelist, Slurm ids, dry_run
  std::vector<RankIdentity> ranks;
  std::vector<HostIdentity> hosts;
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
