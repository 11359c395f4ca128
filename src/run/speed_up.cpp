#include "run/speed_up.h"

#include <algorithm>

#include "result/statistics.h"

namespace trainsuite {
namespace {

/// The last of that name counts, as in the file.
const Setting* find_setting(const Settings& settings, const std::string& name) {
  const auto at = std::find_if(settings.rbegin(), settings.rend(),
                               [&](const Setting& setting) { return setting.name == name; });
  return at == settings.rend() ? nullptr : &*at;
}

/// "plain-compile" is "plain" and "-compile".
std::pair<std::string, std::string> recipe_and_kind(const std::string& name) {
  for (const std::string kind : {"-compile", "-graph"}) {
    if (name.ends_with(kind)) return {name.substr(0, name.size() - kind.size()), kind};
  }
  return {name, ""};
}

/// The recipe whose row `record` is measured against; empty where it has no base of its own.
std::string own_base(const CaseRecord& record) {
  const auto [recipe, kind] = recipe_and_kind(find_text(record.settings, "recipe"));
  for (const std::string execution : {"compile-", "graph-"}) {  // the same attention, eager
    if (recipe.starts_with(execution)) return "eager-" + recipe.substr(execution.size());
  }
  if (recipe == "plain" || recipe == "bf16") return "1gpu" + kind;
  const auto accumulate = find_number(record.settings, "accumulate");
  const bool accumulates = recipe == "both" || recipe.starts_with("accumulate");
  if (!accumulates || !accumulate) return {};
  return "1gpu-accumulate" + std::to_string(static_cast<std::int64_t>(*accumulate)) + kind;
}

std::optional<double> rate_of(const CaseRecord& record) {
  if (record.status != "ok") return std::nullopt;
  auto rate = tokens_per_second(record);
  if (const auto means = loop_means(record); !rate && means) rate = means->tokens_per_second;
  return rate && *rate > 0 ? rate : std::nullopt;
}

/// Rate of the row with that recipe and the size and repeat of `like`.
std::optional<double> base_rate(const std::vector<CaseRecord>& records, const CaseRecord& like,
                                const std::string& recipe) {
  const std::string size = find_text(like.settings, "size");
  for (const CaseRecord& record : records) {
    if (record.repeat == like.repeat && find_text(record.settings, "size") == size &&
        find_text(record.settings, "recipe") == recipe) {
      return rate_of(record);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> find_number(const Settings& settings, const std::string& name) {
  const Setting* setting = find_setting(settings, name);
  if (setting == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(&setting->value)) {
    return static_cast<double>(*whole);
  }
  if (const auto* real = std::get_if<double>(&setting->value)) return *real;
  return std::nullopt;
}

std::string find_text(const Settings& settings, const std::string& name) {
  const Setting* setting = find_setting(settings, name);
  const auto* text = setting ? std::get_if<std::string>(&setting->value) : nullptr;
  return text ? *text : std::string();
}

std::vector<SpeedUp> speed_ups(const std::vector<CaseRecord>& records) {
  std::vector<SpeedUp> all;
  for (const CaseRecord& record : records) {
    SpeedUp& entry = all.emplace_back();
    entry.own_base = own_base(record);
    const auto rate = rate_of(record);
    if (!rate) continue;
    const auto own = base_rate(records, record, entry.own_base);
    if (own && !entry.own_base.empty()) entry.over_own = *rate / *own;
    const auto single = base_rate(records, record, "1gpu");
    if (single) entry.over_1gpu = *rate / *single;
    const bool independent =
        recipe_and_kind(find_text(record.settings, "recipe")).first == "independent";
    if (single && independent && !record.ranks.empty()) {
      entry.efficiency = *entry.over_1gpu / static_cast<double>(record.ranks.size());
    }
  }
  return all;
}

}  // namespace trainsuite
