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
enum class CeilingKind {
  matmul,
  device_copy,
  host_copy,
  all_reduce,
  all_gather,
  reduce_scatter,
  pairs
};
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

/// Two nodes (or ranks) of the row `pairs`, which sent to each other at once, by their numbers.
struct PairPoint {
  int a = 0, b = 0;
  double size = 0, seconds = 0;
  double rate = 0;  // bytes/s in each direction, all ranks of a node together
  double wrong_values = 0;
};
/// From the series of ceiling_points and pair_a, pair_b; ranks outside of a pair have NaN times.
/// For each pair the size of the highest rate, pairs in the order they were run.
std::vector<PairPoint> pair_points(const CaseRecord& record);

/// The groups whose pairs are swept: the ranks of each host, in order of first appearance, or on
/// one host each rank by itself.
std::vector<std::vector<int>> pair_groups(const std::vector<std::string>& host_of_rank);
/// The rank that `rank` exchanges with when groups `a` and `b` meet: the one of the same place in
/// the other group. Absent where there is none.
std::optional<int> peer_of(int rank, const std::vector<int>& a, const std::vector<int>& b);

/// The point of the highest rate. Absent where there is none.
std::optional<CeilingPoint> best_point(const CaseRecord& record);

}  // namespace trainsuite
