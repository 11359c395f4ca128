// What is made from the flag table besides the parser: --help and the recorded settings.
#include <fmt/format.h>

#include <optional>
#include <type_traits>

#include "cli/flag_table.h"
#include "core/text.h"

namespace trainsuite {

std::string help_text(const std::vector<std::string>& suites) {
  std::string text = fmt::format(
      "Usage: trainsuite SUITE [flags]         one process\n"
      "       mpirun -np N trainsuite SUITE    one rank per GPU\n"
      "Measures training on this machine; every step's times go to one HDF5 file.\n"
      "Suites: {}\n",
      join(suites, ", "));
  std::string group;
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) text += fmt::format("\n{}:\n", flag.group);
    group = flag.group;
    const std::string left =
        flag.value_name.empty() ? "--" + flag.name : "--" + flag.name + " " + flag.value_name;
    text += fmt::format("  {:<22} {}\n", left, flag.help);
  }
  text +=
      "\nExit status: 0 every case ran, or ended with a named reason; 1 a case failed or took too\n"
      "long; 2 wrong command line. Quote globs: --case '*1gpu*'.\n";
  return text;
}

namespace {

template <class T>
std::optional<Value> value_of(const T& member) {
  if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return member.empty() ? std::nullopt : std::optional<Value>(join(member, ","));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return member.empty() ? std::nullopt : std::optional<Value>(member);
  } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>> ||
                       std::is_same_v<T, std::optional<double>>) {
    return member ? std::optional<Value>(*member) : std::nullopt;
  } else {
    return Value(member);
  }
}

}  // namespace

Settings recorded_settings(const Options& options) {
  Settings settings;
  for (const Flag& flag : flag_table()) {
    if (flag.recorded.empty()) continue;
    const auto value =
        std::visit([&](auto member) { return value_of(options.*member); }, flag.target);
    if (value) settings.push_back({flag.recorded, *value});
  }
  return settings;
}

}  // namespace trainsuite
