#pragma once
// The functions of NVML that we call, looked up at run time.
#include <dlfcn.h>
#include <nvml.h>

namespace trainsuite {

/// The entry points in use; one that the library lacks stays null and its values absent.
struct NvmlFunctions {
  decltype(&nvmlInit) init = nullptr;
  decltype(&nvmlShutdown) shutdown = nullptr;
  decltype(&nvmlErrorString) error_string = nullptr;
  decltype(&nvmlSystemGetDriverVersion) driver_version = nullptr;
  decltype(&nvmlDeviceGetCount) count = nullptr;
  decltype(&nvmlDeviceGetHandleByIndex) handle = nullptr;
  decltype(&nvmlDeviceGetUUID) uuid = nullptr;
  decltype(&nvmlDeviceGetName) name = nullptr;
  decltype(&nvmlDeviceGetPciInfo) pci = nullptr;
  decltype(&nvmlDeviceGetPowerUsage) power = nullptr;
  decltype(&nvmlDeviceGetTotalEnergyConsumption) energy = nullptr;
  decltype(&nvmlDeviceGetClockInfo) clock = nullptr;
  decltype(&nvmlDeviceGetTemperature) temperature = nullptr;
  decltype(&nvmlDeviceGetCurrentClocksEventReasons) reasons = nullptr;
  decltype(&nvmlDeviceGetComputeRunningProcesses) processes = nullptr;
  decltype(&nvmlDeviceGetEnforcedPowerLimit) power_limit = nullptr;
  decltype(&nvmlDeviceGetPowerManagementDefaultLimit) default_limit = nullptr;
  decltype(&nvmlDeviceGetEccMode) ecc = nullptr;
  decltype(&nvmlDeviceGetMigMode) mig = nullptr;
  decltype(&nvmlDeviceGetComputeMode) compute_mode = nullptr;
  decltype(&nvmlDeviceGetPersistenceMode) persistence = nullptr;
  decltype(&nvmlDeviceGetCurrPcieLinkGeneration) generation = nullptr;
  decltype(&nvmlDeviceGetMaxPcieLinkGeneration) most_generation = nullptr;
  decltype(&nvmlDeviceGetCurrPcieLinkWidth) width = nullptr;
  decltype(&nvmlDeviceGetMaxPcieLinkWidth) most_width = nullptr;
  decltype(&nvmlDeviceGetTopologyCommonAncestor) ancestor = nullptr;
  decltype(&nvmlDeviceGetP2PStatus) peer_status = nullptr;
  decltype(&nvmlDeviceGetNvLinkState) link_state = nullptr;
  decltype(&nvmlDeviceGetNvLinkRemotePciInfo) link_remote = nullptr;
};

// nvml.h renames some functions to newer versions: the name is taken after that.
#define TRAINSUITE_TEXT(name) #name
#define TRAINSUITE_LOAD(member, name) load(library, TRAINSUITE_TEXT(name), functions.member)

template <class Function>
void load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

inline NvmlFunctions load_nvml_functions(void* library) {
  NvmlFunctions functions;
  TRAINSUITE_LOAD(init, nvmlInit);
  TRAINSUITE_LOAD(shutdown, nvmlShutdown);
  TRAINSUITE_LOAD(error_string, nvmlErrorString);
  TRAINSUITE_LOAD(driver_version, nvmlSystemGetDriverVersion);
  TRAINSUITE_LOAD(count, nvmlDeviceGetCount);
  TRAINSUITE_LOAD(handle, nvmlDeviceGetHandleByIndex);
  TRAINSUITE_LOAD(uuid, nvmlDeviceGetUUID);
  TRAINSUITE_LOAD(name, nvmlDeviceGetName);
  TRAINSUITE_LOAD(pci, nvmlDeviceGetPciInfo);
  TRAINSUITE_LOAD(power, nvmlDeviceGetPowerUsage);
  TRAINSUITE_LOAD(energy, nvmlDeviceGetTotalEnergyConsumption);
  TRAINSUITE_LOAD(clock, nvmlDeviceGetClockInfo);
  TRAINSUITE_LOAD(temperature, nvmlDeviceGetTemperature);
  TRAINSUITE_LOAD(reasons, nvmlDeviceGetCurrentClocksEventReasons);
  TRAINSUITE_LOAD(processes, nvmlDeviceGetComputeRunningProcesses);
  TRAINSUITE_LOAD(power_limit, nvmlDeviceGetEnforcedPowerLimit);
  TRAINSUITE_LOAD(default_limit, nvmlDeviceGetPowerManagementDefaultLimit);
  TRAINSUITE_LOAD(ecc, nvmlDeviceGetEccMode);
  TRAINSUITE_LOAD(mig, nvmlDeviceGetMigMode);
  TRAINSUITE_LOAD(compute_mode, nvmlDeviceGetComputeMode);
  TRAINSUITE_LOAD(persistence, nvmlDeviceGetPersistenceMode);
  TRAINSUITE_LOAD(generation, nvmlDeviceGetCurrPcieLinkGeneration);
  TRAINSUITE_LOAD(most_generation, nvmlDeviceGetMaxPcieLinkGeneration);
  TRAINSUITE_LOAD(width, nvmlDeviceGetCurrPcieLinkWidth);
  TRAINSUITE_LOAD(most_width, nvmlDeviceGetMaxPcieLinkWidth);
  TRAINSUITE_LOAD(ancestor, nvmlDeviceGetTopologyCommonAncestor);
  TRAINSUITE_LOAD(peer_status, nvmlDeviceGetP2PStatus);
  TRAINSUITE_LOAD(link_state, nvmlDeviceGetNvLinkState);
  TRAINSUITE_LOAD(link_remote, nvmlDeviceGetNvLinkRemotePciInfo);
  return functions;
}
#undef TRAINSUITE_LOAD
#undef TRAINSUITE_TEXT

}  // namespace trainsuite
