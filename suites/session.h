#pragma once
// What a run of any suite starts from: the device, the communicator, who else is here.
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "comm/communicator.h"
#include "comm/nccl_log.h"
#include "device/device.h"
#include "device/telemetry.h"
#include "launch/world.h"
#include "result/ceilings_file.h"
#include "result/earlier_file.h"
#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

/// The device and communicator that `options` choose for this rank. Pure but for looking at the
/// machine; throws UsageError. Usable before MPI.
struct Choice {
  bool cuda = false;
  std::string comm;  // nccl|mpi
};
Choice choose(const Options& options);

class Session {
 public:
  /// Collective: chooses and activates the device, compares versions and settings of all ranks,
  /// refuses two ranks on one GPU unless oversubscribed. Throws the same UsageError on all ranks.
  Session(World& world, const Options& options, const std::vector<std::string>& argv);

  World& world() { return world_; }
  const DeviceInfo& device() const { return device_; }
  const std::string& comm_kind() const { return comm_kind_; }
  const RunRecord& run_record() const { return run_; }
  RunRecord& run_record() { return run_; }
  /// What of the environment the command line overruled, a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }

  /// The run's communicator, made at first use. Collective then.
  Communicator& communicator();
  /// What NCCL says that it chose, on rank 0 once it has communicated; empty elsewhere.
  Settings nccl_choices() const;
  /// After a failure: the communicator is aborted; the next use makes a new one. Returns why this
  /// process's device is of no more use, empty where it is.
  std::string recover();

  /// Samples this rank's GPU and host; null with --telemetry off.
  Telemetry* telemetry() { return telemetry_.get(); }

  /// Rank 0: reads the peaks that --ceilings names; throws UsageError where none is of this device.
  void load_ceilings(const std::string& path);
  struct Peak {
    double flops;        // FLOP/s of one device
    std::string source;  // "measured" or "listed"
  };
  /// Measured where --ceilings has it, else the listed one of a known GPU in bf16, else absent.
  std::optional<Peak> peak_flops(const std::string& precision) const;
  /// Collective: device memory that is free where least is; absent on a CPU.
  std::optional<std::int64_t> least_free_bytes();

  /// Collective: throws UsageError where the ranks would run different cases.
  void check_same_cases(const std::vector<Case>& cases);

  /// Replaces "auto" in the cases' kernels by what runs: rank 0 measures, all ranks take its word.
  /// Where a file is gone on with (`earlier` on rank 0, null elsewhere), what it holds is kept.
  void resolve_kernels(std::vector<Case>& cases, const EarlierFile* earlier);

 private:
  void identify(const std::vector<std::string>& argv);

  World& world_;
  Options options_;
  DeviceInfo device_;
  Affinity affinity_;
  std::string comm_kind_;
  std::unique_ptr<NcclLog> nccl_log_;  // outlives the communicator
  std::unique_ptr<Communicator> communicator_;
  RunRecord run_;
  std::vector<MeasuredCeiling> ceilings_;
  std::unique_ptr<Telemetry> telemetry_;
  std::vector<std::string> notes_;
};

}  // namespace trainsuite
