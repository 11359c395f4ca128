#pragma once
// The one table of flags: the parser, --help and the recorded attributes are all made from it.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/options.h"

namespace trainsuite {

/// The member of Options that a flag sets; its type is the type of the value. A list makes the
/// flag repeatable, a bool makes it a switch.
using Target =
    std::variant<bool Options::*, std::string Options::*, std::vector<std::string> Options::*,
                 std::int64_t Options::*, std::optional<std::int64_t> Options::*, double Options::*,
                 std::optional<double> Options::*>;

/// Valid numbers: minimum <= value <= maximum (minimum < value where `above`).
struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above = false;
};

struct Flag {
  std::string name;        // "micro-batch"
  std::string group;       // heading in --help
  std::string value_name;  // "N"; empty for a switch
  std::string help;        // one line; defaults in brackets
  std::string recorded;    // attribute in the result file; empty: not recorded
  Target target;
  std::vector<std::string> allowed;  // texts: the valid ones; empty: any but the empty text
  Range range;                       // numbers
};

const std::vector<Flag>& flag_table();

}  // namespace trainsuite
