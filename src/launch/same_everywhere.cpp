#include "launch/same_everywhere.h"

#include <optional>
#include <variant>

#include "core/error.h"
#include "core/text.h"
#include "launch/world.h"

namespace trainsuite {
namespace {

// Separators that no flag's value holds.
constexpr char after_name = '\x1f';
constexpr char after_setting = '\x1e';

std::string value_text(const Value& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

using Named = std::vector<std::pair<std::string, std::string>>;

Named parse(const std::string& text) {
  Named settings;
  for (size_t first = 0; first < text.size();) {
    const size_t middle = text.find(after_name, first);
    const size_t last = text.find(after_setting, middle);
    settings.emplace_back(text.substr(first, middle - first),
                          text.substr(middle + 1, last - middle - 1));
    first = last + 1;
  }
  return settings;
}

std::optional<std::string> find_value(const Named& settings, const std::string& name) {
  for (const auto& [key, value] : settings) {
    if (key == name) return value;
  }
  return std::nullopt;
}

// "fp32 on ranks 0, 2; bf16 on rank 1", empty where all ranks have the same value.
std::string disagreement(const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, std::vector<std::string>>> holders;
  for (size_t r = 0; r < values.size(); ++r) {
    auto it = holders.begin();
    while (it != holders.end() && it->first != values[r]) ++it;
    if (it == holders.end()) it = holders.insert(it, {values[r], {}});
    it->second.push_back(std::to_string(r));
  }
  if (holders.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [value, who] : holders) {
    parts.push_back(
        fmt::format("{} on rank{} {}", value, who.size() > 1 ? "s" : "", join(who, ", ")));
  }
  return join(parts, "; ");
}

std::vector<std::string> values_of(const std::vector<Named>& ranks, const std::string& name) {
  std::vector<std::string> values;
  for (const Named& settings : ranks) {
    values.push_back(find_value(settings, name).value_or("absent"));
  }
  return values;
}

}  // namespace

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += setting.name + after_name + value_text(setting.value) + after_setting;
  }
  return text;
}

std::string first_difference(const std::vector<std::string>& all) {
  std::vector<Named> ranks;
  for (const std::string& text : all) ranks.push_back(parse(text));
  for (const Named& settings : ranks) {
    for (const auto& [name, value] : settings) {
      const std::string difference = disagreement(values_of(ranks, name));
      if (!difference.empty()) return fmt::format("{} differs: {}", name, difference);
    }
  }
  return "";
}

void check_same_everywhere(World& world, const Settings& mine) {
  const std::string difference = first_difference(world.all_gather(settings_text(mine)));
  if (difference.empty()) return;
  const std::string hosts = disagreement(world.all_gather(world.host()));  // empty: all on one
  fail<UsageError>("{}{}{}; start every rank with the same build and the same command line",
                   difference, hosts.empty() ? "" : "; hosts: ", hosts);
}

}  // namespace trainsuite
