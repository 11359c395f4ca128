#pragma once
// What the driver's management library tells about GPUs. It is loaded at run time, so a machine
// without it works; every value that it does not give is absent.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// One look at a GPU. NaN: not told.
struct GpuReading {
  double power_watts = NAN;
  double sm_clock_mhz = NAN, memory_clock_mhz = NAN;
  double temperature_celsius = NAN;
  double throttle_reasons = NAN;  // NVML's bit mask
  double other_processes = NAN;   // with a context on this GPU, beside our own
};

class Nvml {
 public:
  /// Null where the library or its set-up is missing; `reason` then says why.
  static std::shared_ptr<const Nvml> open(std::string& reason,
                                          const std::string& library = "libnvidia-ml.so.1");
  virtual ~Nvml() = default;

  virtual std::string driver_version() const = 0;
  /// Number of GPUs of this host, whether or not CUDA_VISIBLE_DEVICES hides them.
  virtual int count() const = 0;
  /// NVML's index of a GPU, -1 where there is none of that UUID ("GPU-...").
  virtual int index_of(const std::string& uuid) const = 0;
  /// Everything but the host's name.
  virtual GpuIdentity identity(int index) const = 0;
  /// NV<links>, PIX, PXB, PHB, NODE or SYS as nvidia-smi names them; empty where not told.
  virtual std::string link(int a, int b) const = 0;
  /// `own_processes`: the ranks of this run that use that GPU.
  virtual GpuReading read(int index, const std::vector<int>& own_processes) const = 0;
  /// Joules since the driver was loaded, NaN where the GPU does not count them.
  virtual double energy_joules(int index) const = 0;
};

/// Of `listed` processes with a context on a GPU, those that are not ours (`own`: each rank's
/// once). A driver may list a process several times, once a context. In a container NVML may number
/// processes otherwise than we do: where none of ours is listed, as many as we are count as ours.
int other_processes(const std::vector<unsigned>& listed, const std::vector<int>& own);

}  // namespace trainsuite
