#include "run/run_facts.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"

namespace trainsuite {
namespace {

using nlohmann::json;

constexpr std::array recorded_variables{"CUDA_VISIBLE_DEVICES",
                                        "CUDA_DEVICE_ORDER",
                                        "CUDA_LAUNCH_BLOCKING",
                                        "CUDA_DEVICE_MAX_CONNECTIONS",
                                        "PYTORCH_ALLOC_CONF",
                                        "PYTORCH_CUDA_ALLOC_CONF",
                                        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
                                        "CUBLAS_WORKSPACE_CONFIG",
                                        "OMP_NUM_THREADS",
                                        "MKL_NUM_THREADS",
                                        "NCCL_ALGO",
                                        "NCCL_BUFFSIZE",
                                        "NCCL_DEBUG",
                                        "NCCL_IB_DISABLE",
                                        "NCCL_IB_HCA",
                                        "NCCL_MAX_NCHANNELS",
                                        "NCCL_MIN_NCHANNELS",
                                        "NCCL_NET",
                                        "NCCL_NVLS_ENABLE",
                                        "NCCL_P2P_DISABLE",
                                        "NCCL_P2P_LEVEL",
                                        "NCCL_PROTO",
                                        "NCCL_SHM_DISABLE",
                                        "NCCL_SOCKET_IFNAME",
                                        "NCCL_NET_GDR_LEVEL",
                                        "OMPI_MCA_btl",
                                        "OMPI_MCA_btl_tcp_if_include",
                                        "OMPI_MCA_pml",
                                        "OMPI_MCA_rmaps_base_oversubscribe",
                                        "OMPI_MCA_hwloc_base_binding_policy",
                                        "OMPI_MCA_mpi_yield_when_idle",
                                        "SLURM_JOB_ID",
                                        "SLURM_ARRAY_JOB_ID",
                                        "SLURM_ARRAY_TASK_ID",
                                        "SLURM_JOB_NUM_NODES",
                                        "SLURM_JOB_NODELIST",
                                        "SLURM_RESTART_COUNT",
                                        "SLURM_TASKS_PER_NODE",
                                        "SLURM_NTASKS",
                                        "SLURM_CPUS_PER_TASK",
                                        "SLURM_JOB_PARTITION"};

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string after_colon(const std::string& line) {
  const auto colon = line.find(':');
  if (colon == std::string::npos) return {};
  const auto start = line.find_first_not_of(" \t", colon + 1);
  return start == std::string::npos ? std::string{} : line.substr(start);
}

}  // namespace

std::string utc_now() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

HostIdentity this_host(const std::string& name) {
  HostIdentity host{.host = name, .cpu_model = {}, .kernel = {}, .virtualisation = {}};
  std::set<std::string> sockets;
  bool hypervisor = false;
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name") && host.cpu_model.empty())
      host.cpu_model = after_colon(line);
    if (line.starts_with("physical id")) sockets.insert(after_colon(line));
    if (line.starts_with("flags") && line.find(" hypervisor") != std::string::npos) {
      hypervisor = true;
    }
  }
  host.sockets = static_cast<std::int64_t>(sockets.empty() ? 1 : sockets.size());
  host.cores = sysconf(_SC_NPROCESSORS_ONLN);
  host.ram_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  utsname system{};
  if (uname(&system) == 0) host.kernel = std::string(system.sysname) + " " + system.release;
  const auto product = first_line("/sys/class/dmi/id/product_name");
  if (hypervisor) host.virtualisation = product.empty() ? "hypervisor" : "hypervisor: " + product;
  return host;
}

Settings recorded_environment() {
  Settings settings;
  for (const char* name : recorded_variables) {
    const char* value = std::getenv(name);
    if (value) settings.push_back({std::string("env_") + name, std::string(value)});
  }
  return settings;
}

std::string host_to_text(const HostIdentity& h) {
  return json{h.host, h.cpu_model, h.kernel, h.virtualisation, h.sockets, h.cores, h.ram_bytes}
      .dump();
}

HostIdentity host_from_text(const std::string& text) {
  const auto j = json::parse(text);
  return {j[0], j[1], j[2], j[3], j[4], j[5], j[6]};
}

std::string rank_to_text(const RankIdentity& r) {
  return json{r.rank, r.local_rank, r.host,         r.device_name,
              r.uuid, r.pci_bus_id, r.memory_bytes, r.cores}
      .dump();
}

RankIdentity rank_from_text(const std::string& text) {
  const auto j = json::parse(text);
  return {j[0], j[1], j[2], j[3], j[4], j[5], j[6], j[7]};
}

std::string core_ranges(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t j = i;
    while (j + 1 < cores.size() && cores[j + 1] == cores[j] + 1) ++j;
    if (!text.empty()) text += ",";
    text += i == j ? fmt::format("{}", cores[i]) : fmt::format("{}-{}", cores[i], cores[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace trainsuite
