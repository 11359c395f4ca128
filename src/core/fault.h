#pragma once
// A fault made on purpose: the hook by which tests see how a run ends when a rank fails.
#include <cstdint>
#include <optional>
#include <string>

namespace trainsuite {

/// TRAINSUITE_FAULT="rank=1,step=3,kind=hang[,case=plain]": what rank 1 does before its step 3 (the
/// first is 0) of every case, or of the case of that name (or part after the size).
struct Fault {
  int rank = 0;
  std::int64_t step = 0;
  /// throw|oom|nan; late (throws after 10 s, when the others wait for it); hang|exit|kill; assert
  /// (a kernel that traps, on a GPU)
  std::string kind;
  std::string case_name;
};

/// Throws UsageError naming what is wrong with `text`.
Fault parse_fault(const std::string& text);
/// As given by the environment; absent where the variable is unset or empty. Throws UsageError.
std::optional<Fault> fault_of_environment();
std::string to_text(const Fault& fault);

/// Does what needs no tensors: throw, oom, late, hang, exit, kill. Nothing for the other kinds.
void commit(const Fault& fault);

}  // namespace trainsuite
