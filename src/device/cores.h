#pragma once
// Which cores there are, which of them a rank gets, and who bound it.
#include <sched.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace trainsuite {

/// A physical core: its logical CPUs (inside some mask) and NUMA node (-1 unknown).
struct Core {
  std::vector<int> cpus;
  int numa_node = -1;
};

/// "0-2,8" -> {0, 1, 2, 8}; empty for text that is no such list.
std::vector<int> parse_cpu_list(const std::string& text);

/// The logical CPUs that process `pid` (0: this thread) may use.
std::vector<int> allowed_cpus(pid_t pid);
/// Binds every thread of this process. Throws Error when the system refuses.
void bind_all_threads(const std::vector<int>& cpus);

/// The physical cores behind these logical CPUs, in order of NUMA node and number, from /sys.
std::vector<Core> physical_cores(const std::vector<int>& cpus);
/// NUMA node of a PCI device ("0000:3b:00.0"), -1 where unknown.
int numa_node_of(const std::string& pci_bus_id);

/// The cores of one rank. node_of_rank[r]: NUMA node of local rank r's GPU, -1 for none. Ranks of
/// a node divide its cores, all others divide all cores; where there are fewer cores than ranks,
/// the ranks share all of them. Never empty when `cores` is not.
std::vector<Core> share_of_cores(const std::vector<Core>& cores,
                                 const std::vector<int>& node_of_rank, int local_rank);

enum class Binder { nobody, mpi_default, launcher };

/// The nearest ancestor that starts ranks (mpirun, orted, prted, slurmstepd, ...).
struct Launcher {
  std::string name;  // empty: none found
  std::string command_line;
  std::vector<int> cpus;
};
Launcher find_launcher();

/// Who chose the CPUs `mine`. `environment` looks a variable up (nullptr: unset).
Binder who_bound(const std::vector<int>& mine, const Launcher& launcher,
                 const std::function<const char*(const char*)>& environment);

}  // namespace trainsuite
