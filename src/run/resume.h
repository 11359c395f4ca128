#pragma once
// Going on with a result file: what may be continued, and what is left to run.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/setting.h"
#include "result/earlier_file.h"
#include "result/record.h"
#include "run/case.h"

namespace trainsuite {

/// What a file has of a case.
struct EarlierCase {
  std::int64_t have = 0;  // rows that need not be run again
  std::int64_t next = 0;  // the first free repeat number
};
using EarlierCases = std::map<std::string, EarlierCase>;  // by name

/// `retry`: rows that failed or timed out are run again, as further repeats. Cases that were
/// stopped always are.
EarlierCases earlier_cases(const EarlierFile& file, const std::string& suite, bool retry);

/// The number of a case's planned repeat (0, 1, ...) in the file; absent where it is there already.
std::optional<std::int64_t> repeat_to_run(const EarlierCases& earlier, const std::string& name,
                                          std::int64_t planned_repeat);

std::string to_text(const EarlierCases& cases);
EarlierCases earlier_cases_from_text(const std::string& text);

/// Throws UsageError naming the first things in which this run differs from the file's last one:
/// the program and its libraries, the machine (kinds of GPUs, CPUs, number of ranks), the settings
/// of cases that both have. Host names, GPU serial numbers, and limits of time may differ.
void check_resumable(const EarlierFile& file, const RunRecord& run, const std::vector<Case>& cases,
                     const Settings& flags);

}  // namespace trainsuite
