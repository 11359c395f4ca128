#pragma once
// A named value as it is recorded in the result file and printed in plans.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace trainsuite {

using Value = std::variant<bool, std::int64_t, double, std::string>;

struct Setting {
  std::string name;
  Value value;
};

using Settings = std::vector<Setting>;

}  // namespace trainsuite
