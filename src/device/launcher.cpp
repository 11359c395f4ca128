// Who started this rank, and whether that binding was asked for.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "device/cores.h"

namespace trainsuite {
namespace {

constexpr std::array open_mpi_launchers = {"mpirun",  "mpiexec", "orterun", "orted",
                                           "prterun", "prted",   "prte"};
constexpr std::array other_launchers = {"slurmstepd", "srun", "hydra_pmi_proxy", "palsd"};
constexpr int most_ancestors = 32;

template <class Names>
bool is_one_of(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Field 4 of /proc/<pid>/stat; the name before it may hold spaces and parentheses.
pid_t parent_of(pid_t pid) {
  const std::string stat = read_all(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > stat.size()) return 0;
  return std::atoi(stat.c_str() + name_end + 4);
}

bool contains_any(std::string text, std::initializer_list<std::string_view> words) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

// mpirun hands what its user asked for to the ranks as MCA variables (Open MPI 4, by experiment);
// PRRTE (Open MPI 5) may leave it on the launcher's command line only.
bool binding_was_asked_for(const Launcher& launcher,
                           const std::function<const char*(const char*)>& environment) {
  for (const char* name :
       {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_hwloc_base_cpu_set",
        "OMPI_MCA_hwloc_base_cpu_list", "OMPI_MCA_orte_rankfile", "OMPI_MCA_rmaps_rank_file_path",
        "PRTE_MCA_hwloc_default_binding_policy", "PRTE_MCA_hwloc_default_cpu_list"}) {
    if (environment(name) != nullptr) return true;
  }
  for (const char* name :
       {"OMPI_MCA_rmaps_base_mapping_policy", "PRTE_MCA_rmaps_default_mapping_policy"}) {
    const char* policy = environment(name);
    if (policy != nullptr && contains_any(policy, {"pe=", "pe-list"})) return true;
  }
  return contains_any(launcher.command_line,
                      {"bind-to", "cpu-set", "cpu-list", "rankfile", "pe-list",
                       ":pe=", "cpus-per-proc", "cpus-per-rank", "binding_policy"});
}

}  // namespace

Launcher find_launcher() {
  Launcher launcher;
  pid_t pid = getppid();
  for (int i = 0; i < most_ancestors && pid > 1; ++i, pid = parent_of(pid)) {
    std::string name = read_all(fmt::format("/proc/{}/comm", pid));
    while (!name.empty() && name.back() == '\n') name.pop_back();
    if (!is_one_of(open_mpi_launchers, name) && !is_one_of(other_launchers, name)) continue;
    launcher.name = name;
    launcher.command_line = read_all(fmt::format("/proc/{}/cmdline", pid));
    // Only the launcher's own options: the program's are ours.
    const size_t program = launcher.command_line.find("trainsuite");
    launcher.command_line = launcher.command_line.substr(0, program);
    launcher.cpus = allowed_cpus(pid);
    return launcher;
  }
  return launcher;
}

Binder who_bound(const std::vector<int>& mine, const Launcher& launcher,
                 const std::function<const char*(const char*)>& environment) {
  if (launcher.name.empty() || mine == launcher.cpus) return Binder::nobody;
  if (!is_one_of(open_mpi_launchers, launcher.name)) return Binder::launcher;
  if (binding_was_asked_for(launcher, environment)) return Binder::launcher;
  // Open MPI 4 says whether it bound the rank; if not, something between it and us did.
  const bool version_4 = environment("OMPI_MCA_orte_ess_num_procs") != nullptr;
  if (version_4 && environment("OMPI_MCA_orte_bound_at_launch") == nullptr) {
    return Binder::launcher;
  }
  return Binder::mpi_default;
}

}  // namespace trainsuite
