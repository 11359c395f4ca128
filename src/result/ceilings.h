#pragma once
// Rates of the ceilings suite from its rows' raw repetitions. Pure arithmetic; bandwidths of
// collectives as nccl-tests defines them (its doc/PERFORMANCE.md).
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// What a row of the suite measures, by the start of its recipe.
enum class CeilingKind { matmul, device_copy, host_copy, all_reduce, all_gather, reduce_scatter };
/// Absent for a recipe that is none of the suite's.
std::optional<CeilingKind> ceiling_kind(const std::string& recipe);
bool is_collective(CeilingKind kind);

/// Bus over algorithm bandwidth: 2 (n - 1) / n for all-reduce, (n - 1) / n for the others. Absent
/// for one rank, which has no bus, and where nothing is communicated.
std::optional<double> bus_factor(CeilingKind kind, int ranks);

/// Work of one repetition on a rank: floating-point operations of a square product of `size`, bytes
/// read and written of a device copy of `size` bytes, else `size` bytes.
double work_of(CeilingKind kind, double size);

/// One problem size of a row.
struct CeilingPoint {
  double size = 0;     // rows of the square matrices, or bytes
  double seconds = 0;  // median over the measured repetitions of the slowest rank's time
  double rate = 0;     // FLOP/s, or bytes/s (collectives: algorithm bandwidth)
  std::optional<double> bus_rate;
  double wrong_values = 0;  // over all ranks; 0: every checked value was right
};
/// From the series problem_size, step_seconds and wrong_values; sizes in the order they were run.
/// Empty for other rows and rows that are not ok.
std::vector<CeilingPoint> ceiling_points(const CaseRecord& record);

/// The point of the highest rate. Absent where there is none.
std::optional<CeilingPoint> best_point(const CaseRecord& record);

}  // namespace trainsuite
