#pragma once
// Ceilings that an earlier run of the ceilings suite has measured.
#include <optional>
#include <string>
#include <vector>

namespace trainsuite {

struct MeasuredCeiling {
  std::string device_name, precision;
  double flops_per_second = 0;
  std::string case_name{};  // repeats of one case are medianed
};

/// The fastest product of every row that is ok, from the result file `path`. Throws UsageError
/// naming `path` where it cannot be read or is no result file.
std::vector<MeasuredCeiling> read_ceilings(const std::string& path);

/// The median over the repeats of that device and precision, of the faster size where `full` and
/// `tiny` were run; absent where there is none.
std::optional<double> product_ceiling(const std::vector<MeasuredCeiling>& all,
                                      const std::string& device_name, const std::string& precision);

}  // namespace trainsuite
