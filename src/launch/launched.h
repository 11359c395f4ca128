#pragma once
// What can be told of the launch, and must be set, before MPI is up.
#include <functional>
#include <optional>
#include <string>

namespace trainsuite {

/// getenv, or a stand-in: the value of a variable, null where it is not set.
using Environment = std::function<const char*(const char*)>;

/// This process's rank and the number of ranks, as its launcher says; 0 and 1 without one. In a
/// Slurm job's script they are the script's own, not those of the job's tasks.
int launched_rank(const Environment& environment);
int launched_size(const Environment& environment);

/// Why MPI cannot start here, in words with the fix, where the environment shows it: tasks of srun
/// that have no PMIx server would end in MPI_Init with a page of text from each.
std::optional<std::string> launch_mistake(const Environment& environment);

/// Makes MPI talk between hosts over this network interface (Open MPI's TCP). Before MPI starts.
/// Returns what of the environment was overruled, a sentence. Throws UsageError where this host has
/// no such interface, naming those it has.
std::optional<std::string> use_interface(const std::string& name);

}  // namespace trainsuite
