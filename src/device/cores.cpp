#include "device/cores.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/error.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

constexpr int most_cpus = 4096;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int parse_int(const std::string& text, int otherwise) {
  int value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int numa_node_of_cpu(int cpu) {
  std::error_code ignored;
  const fs::path folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node")) return parse_int(name.substr(4), -1);
  }
  return -1;
}

// One of `parts` equal parts of the list; the whole list where it has fewer elements.
std::vector<Core> part_of(const std::vector<Core>& cores, size_t part, size_t parts) {
  if (cores.size() < parts) return cores;
  const auto at = [&](size_t i) {
    return cores.begin() + static_cast<std::ptrdiff_t>(i * cores.size() / parts);
  };
  return {at(part), at(part + 1)};
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = parse_int(part, -1);
    const int last = dash == std::string::npos ? first : parse_int(part.substr(dash + 1), -1);
    if (first < 0 || last < first || last >= most_cpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> allowed_cpus(pid_t pid) {
  cpu_set_t* mask = CPU_ALLOC(most_cpus);
  const size_t bytes = CPU_ALLOC_SIZE(most_cpus);
  CPU_ZERO_S(bytes, mask);
  std::vector<int> cpus;
  if (sched_getaffinity(pid, bytes, mask) == 0) {
    for (int cpu = 0; cpu < most_cpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, mask)) cpus.push_back(cpu);
    }
  }
  CPU_FREE(mask);
  return cpus;
}

void bind_all_threads(const std::vector<int>& cpus) {
  cpu_set_t* mask = CPU_ALLOC(most_cpus);
  const size_t bytes = CPU_ALLOC_SIZE(most_cpus);
  CPU_ZERO_S(bytes, mask);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, mask);
  std::error_code ignored;
  int own = sched_setaffinity(0, bytes, mask);
  for (const auto& entry : fs::directory_iterator("/proc/self/task", ignored)) {
    // A thread of MPI's may end meanwhile; only this thread's binding must succeed.
    (void)sched_setaffinity(parse_int(entry.path().filename(), 0), bytes, mask);
  }
  CPU_FREE(mask);
  if (own != 0) fail("sched_setaffinity: the system refuses to bind this rank");
}

std::vector<Core> physical_cores(const std::vector<int>& cpus) {
  std::map<std::pair<int, int>, Core> cores;  // by NUMA node and first sibling
  for (const int cpu : cpus) {
    const auto siblings = parse_cpu_list(first_line(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)));
    const int node = numa_node_of_cpu(cpu);
    Core& core = cores[{node, siblings.empty() ? cpu : siblings.front()}];
    core.cpus.push_back(cpu);
    core.numa_node = node;
  }
  std::vector<Core> list;
  for (auto& [key, core] : cores) list.push_back(std::move(core));
  return list;
}

int numa_node_of(const std::string& pci_bus_id) {
  if (pci_bus_id.empty()) return -1;
  return parse_int(first_line(fs::path("/sys/bus/pci/devices") / pci_bus_id / "numa_node"), -1);
}

std::vector<Core> share_of_cores(const std::vector<Core>& cores,
                                 const std::vector<int>& node_of_rank, int local_rank) {
  const auto me = static_cast<size_t>(local_rank);
  const int node = node_of_rank[me];
  std::vector<Core> near;
  std::copy_if(cores.begin(), cores.end(), std::back_inserter(near),
               [&](const Core& core) { return core.numa_node == node; });
  if (node < 0 || near.empty()) return part_of(cores, me, node_of_rank.size());
  const auto mine = node_of_rank.begin() + local_rank;
  const auto before = std::count(node_of_rank.begin(), mine, node);
  const auto all = std::count(node_of_rank.begin(), node_of_rank.end(), node);
  return part_of(near, static_cast<size_t>(before), static_cast<size_t>(all));
}

}  // namespace trainsuite
