#include "run/machine_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json to_json(const GpuIdentity& g) {
  return {g.host,
          g.gpu,
          g.uuid,
          g.device_name,
          g.pci_bus_id,
          g.power_limit_watts,
          g.power_limit_default_watts,
          g.ecc,
          g.mig,
          g.persistence,
          g.compute_mode,
          g.pcie_generation,
          g.pcie_generation_max,
          g.pcie_width,
          g.pcie_width_max,
          g.numa_node};
}

GpuIdentity gpu_from(const json& j) {
  return {j[0], j[1], j[2],  j[3],  j[4],  j[5],  j[6],  j[7],
          j[8], j[9], j[10], j[11], j[12], j[13], j[14], j[15]};
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double node_of(const fs::path& device) {
  const std::string text = first_line(device / "numa_node");
  const int node = text.empty() ? -1 : std::atoi(text.c_str());
  return node < 0 ? NAN : node;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void add_infiniband(const std::string& host, const fs::path& system,
                    std::vector<NetworkAdapter>& all) {
  for (const fs::path& adapter : entries(system / "class/infiniband")) {
    for (const fs::path& port : entries(adapter / "ports")) {
      const bool ethernet = first_line(port / "link_layer") == "Ethernet";
      all.push_back({host, adapter.filename().string() + ":" + port.filename().string(),
                     ethernet ? "RoCE" : "InfiniBand", first_line(port / "state"),
                     first_line(port / "rate"), node_of(adapter / "device")});
    }
  }
}

void add_ethernet(const std::string& host, const fs::path& system,
                  std::vector<NetworkAdapter>& all) {
  for (const fs::path& adapter : entries(system / "class/net")) {
    if (!fs::exists(adapter / "device")) continue;            // loopback, bridges, tunnels
    const std::string speed = first_line(adapter / "speed");  // -1 where it is not known
    const bool known = !speed.empty() && speed[0] != '-';
    all.push_back({host, adapter.filename().string(), "Ethernet", first_line(adapter / "operstate"),
                   known ? speed + " Mb/s" : "", node_of(adapter / "device")});
  }
}

std::string place_of(const GpuIdentity& gpu) { return fmt::format("{} GPU {}", gpu.host, gpu.gpu); }

using Print = std::function<std::string(const GpuIdentity&)>;

std::string watts(double value) { return std::isnan(value) ? "" : fmt::format("{:g} W", value); }

void add_difference(const std::vector<GpuIdentity>& gpus, const std::string& name,
                    const Print& print, std::vector<std::string>& found) {
  std::map<std::string, std::vector<std::string>> places;
  for (const GpuIdentity& gpu : gpus) {
    if (const auto text = print(gpu); !text.empty()) places[text].push_back(place_of(gpu));
  }
  if (places.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [text, where] : places) {
    parts.push_back(
        text + " on " +
        (where.size() > 2 ? fmt::format("{} GPUs", where.size()) : join(where, " and ")));
  }
  found.push_back(fmt::format("{} differs between GPUs: {}", name, join(parts, ", ")));
}

}  // namespace

std::string pack(const MachineParts& parts) {
  json gpus = json::array(), links = json::array(), networks = json::array();
  for (const auto& gpu : parts.gpus) gpus.push_back(to_json(gpu));
  for (const auto& l : parts.topology) links.push_back({l.host, l.gpu_a, l.gpu_b, l.link});
  for (const auto& n : parts.networks) {
    networks.push_back({n.host, n.name, n.kind, n.state, n.rate, n.numa_node});
  }
  const auto bytes = json::to_cbor({gpus, links, networks, parts.gpudirect_module});
  return {bytes.begin(), bytes.end()};
}

MachineParts unpack_machine(const std::string& bytes) {
  const auto all = json::from_cbor(bytes);
  MachineParts parts;
  for (const auto& gpu : all.at(0)) parts.gpus.push_back(gpu_from(gpu));
  for (const auto& l : all.at(1)) parts.topology.push_back({l[0], l[1], l[2], l[3]});
  for (const auto& n : all.at(2)) {
    parts.networks.push_back({n[0], n[1], n[2], n[3], n[4], n[5]});
  }
  parts.gpudirect_module = all.at(3);
  return parts;
}

std::vector<NetworkAdapter> network_adapters(const std::string& host, const std::string& system) {
  std::vector<NetworkAdapter> all;
  add_infiniband(host, system, all);
  add_ethernet(host, system, all);
  return all;
}

bool has_gpudirect_module(const std::string& system) {
  return fs::exists(fs::path(system) / "module/nvidia_peermem") ||
         fs::exists(fs::path(system) / "module/nv_peer_mem");
}

std::vector<std::string> gpu_oddities(const std::vector<GpuIdentity>& gpus) {
  std::vector<std::string> found;
  const auto compare = [&](const char* name, const Print& print) {
    add_difference(gpus, name, print, found);
  };
  compare("the model", [](const auto& gpu) { return gpu.device_name; });
  compare("the power limit", [](const auto& gpu) { return watts(gpu.power_limit_watts); });
  compare("ECC", [](const auto& gpu) { return gpu.ecc; });
  compare("MIG", [](const auto& gpu) { return gpu.mig; });
  compare("the compute mode", [](const auto& gpu) { return gpu.compute_mode; });
  compare("persistence", [](const auto& gpu) { return gpu.persistence; });
  compare("the most PCIe lanes", [](const auto& gpu) {
    return std::isnan(gpu.pcie_width_max) ? std::string() : fmt::format("{}", gpu.pcie_width_max);
  });
  for (const GpuIdentity& gpu : gpus) {
    if (gpu.pcie_width < gpu.pcie_width_max) {
      found.push_back(fmt::format("{} runs on {} PCIe lanes of {}", place_of(gpu), gpu.pcie_width,
                                  gpu.pcie_width_max));
    }
  }
  return found;
}

}  // namespace trainsuite
