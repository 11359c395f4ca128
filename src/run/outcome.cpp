#include "run/outcome.h"

#include <nlohmann/json.hpp>

namespace trainsuite {
namespace {

using nlohmann::json;

json to_json(const Settings& settings) {
  json list = json::array();
  for (const auto& setting : settings) {
    std::visit([&](const auto& value) { list.push_back({setting.name, value}); }, setting.value);
  }
  return list;
}

json to_json(const std::vector<Series>& all) {
  json list = json::array();
  for (const auto& one : all) list.push_back({one.name, one.unit, one.values});
  return list;
}

std::vector<Series> series_from(const json& list) {
  std::vector<Series> all;
  for (const auto& one : list) all.push_back({one[0], one[1], one[2].get<std::vector<double>>()});
  return all;
}

Value value_from(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) return value.get<double>();
  return value.get<std::string>();
}

}  // namespace

Outcome with_device(Outcome outcome, const std::string& lost) {
  outcome.lost = lost;
  if (!lost.empty() && outcome.status == "failed") {
    const auto seen = outcome.reason.substr(0, outcome.reason.find('\n'));
    outcome.reason = lost + "; first seen at: " + seen;
  }
  return outcome;
}

std::string pack(const Outcome& outcome) {
  const json all{{"status", outcome.status},
                 {"reason", outcome.reason},
                 {"phase", outcome.phase},
                 {"step", outcome.step},
                 {"lost", outcome.lost},
                 {"rank", outcome.record.rank},
                 {"series", to_json(outcome.record.series)},
                 {"telemetry", to_json(outcome.record.telemetry)},
                 {"facts", to_json(outcome.record.facts)}};
  const auto bytes = json::to_cbor(all);
  return {bytes.begin(), bytes.end()};
}

Outcome unpack(const std::string& bytes) {
  const auto all = json::from_cbor(bytes);
  Outcome outcome{all.at("status"), all.at("reason"), {}};
  outcome.phase = all.at("phase");
  outcome.step = all.at("step");
  outcome.lost = all.at("lost");
  outcome.record.rank = all.at("rank");
  outcome.record.series = series_from(all.at("series"));
  outcome.record.telemetry = series_from(all.at("telemetry"));
  for (const auto& fact : all.at("facts")) {
    outcome.record.facts.push_back({fact[0], value_from(fact[1])});
  }
  return outcome;
}

}  // namespace trainsuite
