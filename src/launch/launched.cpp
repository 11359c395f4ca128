#include "launch/launched.h"

#include <mpi.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

#ifdef OPEN_MPI
constexpr bool is_open_mpi = true;
#else
constexpr bool is_open_mpi = false;
#endif

constexpr const char* included = "OMPI_MCA_btl_tcp_if_include";
constexpr const char* excluded = "OMPI_MCA_btl_tcp_if_exclude";  // Open MPI takes one of the two

int first_number(const Environment& environment, std::initializer_list<const char*> names,
                 int otherwise) {
  for (const char* name : names) {
    if (const char* value = environment(name)) return std::atoi(value);
  }
  return otherwise;
}

std::vector<std::string> interfaces_of_this_host() {
  std::vector<std::string> names;
  struct if_nameindex* all = if_nameindex();
  for (auto* i = all; i != nullptr && i->if_index != 0; ++i) names.emplace_back(i->if_name);
  if (all != nullptr) if_freenameindex(all);
  return names;
}

}  // namespace

int launched_rank(const Environment& environment) {
  return first_number(environment,
                      {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0);
}

int launched_size(const Environment& environment) {
  // SLURM_NTASKS is the job's: in its script there is one process, whatever was asked for.
  return first_number(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}, 1);
}

std::optional<std::string> launch_mistake(const Environment& environment) {
  const bool task_of_srun =
      environment("SLURM_STEP_ID") != nullptr && environment("SLURM_PROCID") != nullptr;
  if (!is_open_mpi || !task_of_srun) return std::nullopt;
  for (const char* served : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_NAMESPACE"}) {
    if (environment(served) != nullptr) return std::nullopt;
  }
  return "srun started this without PMIx, so MPI cannot find the other ranks: use srun --mpi=pmix"
         " (srun --mpi=list shows whether this Slurm has it), or mpirun";
}

std::optional<std::string> use_interface(const std::string& name) {
  if (if_nametoindex(name.c_str()) == 0) {
    fail<UsageError>("--interface {}: this host has no such network interface; it has {}", name,
                     join(interfaces_of_this_host(), ", "));
  }
  std::optional<std::string> note;
  const char* before = std::getenv(included);
  if (before != nullptr && name != before) {
    note = fmt::format("--interface {} sets {}={} instead of {} from the environment", name,
                       included, name, before);
  }
  setenv(included, name.c_str(), 1);
  unsetenv(excluded);
  return note;
}

}  // namespace trainsuite
