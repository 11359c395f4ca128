// libnvidia-ml.so.1 of the tests. FAKE_NVML=different makes GPU 1 unlike GPU 0.
#include "fake_nvml.h"

#include <nvml.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using fake_nvml::Gpu;

fake_nvml::State& state() {
  static fake_nvml::State one;
  static const bool prepared = [] {
    static constexpr const char* uuids[] = {"GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"};
    for (unsigned i = 0; i < fake_nvml::most_gpus; ++i) {
      one.gpus[i].uuid = uuids[i];
      one.gpus[i].bus = 0x18 + i;
    }
    const char* kind = std::getenv("FAKE_NVML");
    if (kind != nullptr && std::strcmp(kind, "different") == 0) {
      one.gpus[1].power_limit_milliwatts = 500000;
      one.gpus[1].ecc = false;
    }
    return true;
  }();
  (void)prepared;
  return one;
}

Gpu& gpu(nvmlDevice_t device) { return *reinterpret_cast<Gpu*>(device); }

nvmlEnableState_t enabled(bool on) { return on ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED; }

nvmlReturn_t put(char* text, unsigned length, const char* value) {
  std::snprintf(text, length, "%s", value);
  return NVML_SUCCESS;
}

nvmlReturn_t put(unsigned* place, unsigned value) {
  *place = value;
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

fake_nvml::State* fake_nvml_state() { return &state(); }

nvmlReturn_t nvmlInit_v2() {
  if (!state().starts) return NVML_ERROR_DRIVER_NOT_LOADED;
  state().open = true;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown() {
  state().open = false;
  return NVML_SUCCESS;
}
const char* nvmlErrorString(nvmlReturn_t result) {
  return result == NVML_ERROR_DRIVER_NOT_LOADED ? "Driver Not Loaded" : "other";
}
nvmlReturn_t nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return put(text, length, "580.1");
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  return put(count, static_cast<unsigned>(state().count));
}
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(&state().gpus.at(index));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned length) {
  return put(text, length, gpu(device).uuid);
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t, char* text, unsigned length) {
  return put(text, length, "NVIDIA FAKE");
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  pci->domain = 0;
  pci->bus = gpu(device).bus;
  pci->device = 0;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* power) {
  ++gpu(device).reads;
  return put(power, gpu(device).power_milliwatts);
}
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* energy) {
  if (!gpu(device).tells_energy) return NVML_ERROR_NOT_SUPPORTED;
  *energy = gpu(device).energy_millijoules;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned* clock) {
  if (type == NVML_CLOCK_SM) return put(clock, gpu(device).sm_clock);
  if (type == NVML_CLOCK_MEM) return put(clock, gpu(device).memory_clock);
  return NVML_ERROR_INVALID_ARGUMENT;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t,
                                      unsigned* value) {
  return put(value, gpu(device).temperature);
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                    unsigned long long* reasons) {
  *reasons = gpu(device).throttle_reasons;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                     nvmlProcessInfo_t* list) {
  const auto all = static_cast<unsigned>(gpu(device).process_count.load());
  if (*count < all) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < all; ++i) list[i].pid = gpu(device).processes.at(i);
  return put(count, all);
}
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* limit) {
  return put(limit, gpu(device).power_limit_milliwatts);
}
nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t, unsigned* limit) {
  return put(limit, 700000);
}
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t* now,
                                  nvmlEnableState_t* later) {
  *now = *later = enabled(gpu(device).ecc);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* now, unsigned* later) {
  *later = 0;
  return put(now, gpu(device).mig ? 1 : 0);
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t, nvmlComputeMode_t* mode) {
  *mode = NVML_COMPUTEMODE_EXCLUSIVE_PROCESS;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t* mode) {
  *mode = enabled(gpu(device).persistence);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t, unsigned* value) {
  return put(value, 4);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t, unsigned* value) {
  return put(value, 5);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned* value) {
  return put(value, gpu(device).width);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t, unsigned* value) { return put(value, 16); }
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t, nvmlDevice_t,
                                                 nvmlGpuTopologyLevel_t* level) {
  *level = static_cast<nvmlGpuTopologyLevel_t>(state().common_ancestor);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t,
                                    nvmlGpuP2PStatus_t* status) {
  const bool peers = gpu(a).peers_by_nvlink && gpu(b).peers_by_nvlink;
  *status = peers ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t* up) {
  *up = enabled(static_cast<int>(link) < gpu(device).active_links);
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned,
                                                 nvmlPciInfo_t* pci) {
  const int there = gpu(device).link_to;
  pci->domain = 0;
  pci->bus = there < 0 ? 0xf0 : state().gpus.at(static_cast<std::size_t>(there)).bus;
  pci->device = 0;
  return NVML_SUCCESS;
}

}  // extern "C"
