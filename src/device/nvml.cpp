#include "device/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "device/nvml_functions.h"

namespace trainsuite {
namespace {

// The bits that result/telemetry.cpp puts into words without this header.
static_assert(nvmlClocksEventReasonSwPowerCap == 0x04 &&
              nvmlClocksThrottleReasonHwSlowdown == 0x08 &&
              nvmlClocksEventReasonSyncBoost == 0x10 &&
              nvmlClocksEventReasonSwThermalSlowdown == 0x20 &&
              nvmlClocksThrottleReasonHwThermalSlowdown == 0x40 &&
              nvmlClocksThrottleReasonHwPowerBrakeSlowdown == 0x80);

const char* on_off(nvmlEnableState_t state) { return state == NVML_FEATURE_ENABLED ? "on" : "off"; }

const char* compute_mode_name(nvmlComputeMode_t mode) {
  switch (mode) {
    case NVML_COMPUTEMODE_DEFAULT:
      return "default";
    case NVML_COMPUTEMODE_PROHIBITED:
      return "prohibited";
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return "exclusive process";
    default:
      return "exclusive thread";
  }
}

/// As nvidia-smi's topology table has it.
const char* ancestor_name(nvmlGpuTopologyLevel_t level) {
  switch (level) {
    case NVML_TOPOLOGY_INTERNAL:
    case NVML_TOPOLOGY_SINGLE:
      return "PIX";
    case NVML_TOPOLOGY_MULTIPLE:
      return "PXB";
    case NVML_TOPOLOGY_HOSTBRIDGE:
      return "PHB";
    case NVML_TOPOLOGY_NODE:
      return "NODE";
    case NVML_TOPOLOGY_SYSTEM:
      return "SYS";
  }
  return "";
}

bool same_place(const nvmlPciInfo_t& a, const nvmlPciInfo_t& b) {
  return a.domain == b.domain && a.bus == b.bus && a.device == b.device;
}

class LoadedNvml final : public Nvml {
 public:
  LoadedNvml(void* library, NvmlFunctions functions) : library_(library), call_(functions) {
    unsigned count = 0;
    if (call_.count(&count) != NVML_SUCCESS) count = 0;
    for (unsigned i = 0; i < count; ++i) {
      nvmlDevice_t device{};
      if (call_.handle(i, &device) == NVML_SUCCESS) devices_.push_back(device);
    }
  }
  ~LoadedNvml() override {
    call_.shutdown();
    dlclose(library_);
  }

  std::string driver_version() const override {
    std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
    return ok(call_.driver_version, text.data(), length(text)) ? text.data() : "";
  }

  int count() const override { return static_cast<int>(devices_.size()); }

  int index_of(const std::string& uuid) const override {
    for (int i = 0; i < count(); ++i) {
      if (uuid_of(at(i)) == uuid) return i;
    }
    return -1;
  }

  GpuIdentity identity(int index) const override {
    const auto device = at(index);
    GpuIdentity gpu;
    gpu.gpu = index;
    gpu.uuid = uuid_of(device);
    std::array<char, NVML_DEVICE_NAME_V2_BUFFER_SIZE> name{};
    if (ok(call_.name, device, name.data(), length(name))) gpu.device_name = name.data();
    nvmlPciInfo_t pci{};
    if (ok(call_.pci, device, &pci)) {
      gpu.pci_bus_id = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    }
    gpu.power_limit_watts = number(call_.power_limit, device) * 1e-3;
    gpu.power_limit_default_watts = number(call_.default_limit, device) * 1e-3;
    gpu.pcie_generation = number(call_.generation, device);
    gpu.pcie_generation_max = number(call_.most_generation, device);
    gpu.pcie_width = number(call_.width, device);
    gpu.pcie_width_max = number(call_.most_width, device);
    add_modes(device, gpu);
    return gpu;
  }

  std::string link(int a, int b) const override {
    if (const int links = nvlinks(at(a), at(b)); links > 0) return fmt::format("NV{}", links);
    nvmlGpuTopologyLevel_t level{};
    return ok(call_.ancestor, at(a), at(b), &level) ? ancestor_name(level) : "";
  }

  GpuReading read(int index, const std::vector<int>& own_processes) const override {
    const auto device = at(index);
    GpuReading reading;
    reading.power_watts = number(call_.power, device) * 1e-3;
    unsigned value = 0;
    if (ok(call_.clock, device, NVML_CLOCK_SM, &value)) reading.sm_clock_mhz = value;
    if (ok(call_.clock, device, NVML_CLOCK_MEM, &value)) reading.memory_clock_mhz = value;
    if (ok(call_.temperature, device, NVML_TEMPERATURE_GPU, &value)) {
      reading.temperature_celsius = value;
    }
    unsigned long long mask = 0;
    if (ok(call_.reasons, device, &mask)) reading.throttle_reasons = static_cast<double>(mask);
    std::array<nvmlProcessInfo_t, 64> list{};
    auto listed = length(list);
    if (ok(call_.processes, device, &listed, list.data())) {
      std::vector<unsigned> numbers;
      for (unsigned i = 0; i < listed; ++i) numbers.push_back(list[i].pid);
      reading.other_processes = other_processes(numbers, own_processes);
    }
    return reading;
  }

  double energy_joules(int index) const override {
    unsigned long long millijoules = 0;
    if (!ok(call_.energy, at(index), &millijoules)) return NAN;
    return static_cast<double>(millijoules) * 1e-3;
  }

 private:
  template <class Function, class... Arguments>
  static bool ok(Function function, Arguments... arguments) {
    return function != nullptr && function(arguments...) == NVML_SUCCESS;
  }

  template <class Function>
  static double number(Function function, nvmlDevice_t device) {
    unsigned value = 0;
    return ok(function, device, &value) ? value : NAN;
  }

  template <class Array>
  static unsigned length(const Array& array) {
    return static_cast<unsigned>(array.size());
  }

  nvmlDevice_t at(int index) const { return devices_.at(static_cast<std::size_t>(index)); }

  std::string uuid_of(nvmlDevice_t device) const {
    std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> text{};
    return ok(call_.uuid, device, text.data(), length(text)) ? text.data() : "";
  }

  void add_modes(nvmlDevice_t device, GpuIdentity& gpu) const {
    nvmlEnableState_t state{}, pending{};
    if (ok(call_.ecc, device, &state, &pending)) gpu.ecc = on_off(state);
    if (ok(call_.persistence, device, &state)) gpu.persistence = on_off(state);
    nvmlComputeMode_t mode{};
    if (ok(call_.compute_mode, device, &mode)) gpu.compute_mode = compute_mode_name(mode);
    unsigned now = 0, later = 0;
    if (ok(call_.mig, device, &now, &later)) gpu.mig = now == 0 ? "off" : "on";
  }

  /// Links that lead straight from one GPU to the other. Where they go through switches, which a
  /// driver need not name, all of a GPU's links reach every GPU that it is a peer of by NVLink.
  int nvlinks(nvmlDevice_t a, nvmlDevice_t b) const {
    nvmlPciInfo_t there{};
    const bool known = ok(call_.pci, b, &there);
    int direct = 0, active = 0;
    for (unsigned i = 0; i < NVML_NVLINK_MAX_LINKS; ++i) {
      nvmlEnableState_t state = NVML_FEATURE_DISABLED;
      if (!ok(call_.link_state, a, i, &state) || state != NVML_FEATURE_ENABLED) continue;
      ++active;
      nvmlPciInfo_t remote{};
      if (known && ok(call_.link_remote, a, i, &remote) && same_place(remote, there)) ++direct;
    }
    if (direct > 0) return direct;
    nvmlGpuP2PStatus_t status{};
    const bool peers = ok(call_.peer_status, a, b, NVML_P2P_CAPS_INDEX_NVLINK, &status) &&
                       status == NVML_P2P_STATUS_OK;
    return peers ? active : 0;
  }

  void* library_;
  NvmlFunctions call_;
  std::vector<nvmlDevice_t> devices_;
};

}  // namespace

std::shared_ptr<const Nvml> Nvml::open(std::string& reason, const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    reason = fmt::format("NVML is not here: {}", error ? error : library);
    return nullptr;
  }
  const auto functions = load_nvml_functions(handle);
  if (!functions.init || !functions.shutdown || !functions.count || !functions.handle) {
    reason = fmt::format("{} is no NVML that this program knows", library);
  } else if (const auto state = functions.init(); state != NVML_SUCCESS) {
    reason =
        fmt::format("NVML could not start: {}",
                    functions.error_string ? functions.error_string(state) : "no reason given");
  } else {
    return std::make_shared<LoadedNvml>(handle, functions);
  }
  dlclose(handle);
  return nullptr;
}

int other_processes(const std::vector<unsigned>& listed, const std::vector<int>& own) {
  const std::set<unsigned> each(listed.begin(), listed.end());
  const auto ours = std::count_if(
      own.begin(), own.end(), [&](int pid) { return each.count(static_cast<unsigned>(pid)) > 0; });
  const auto all = static_cast<int>(each.size());
  if (ours > 0) return all - static_cast<int>(ours);
  return std::max(0, all - static_cast<int>(own.size()));
}

}  // namespace trainsuite
