#include "result/hdf5_layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

#include "core/error.h"
#include "result/hdf5_tables.h"
#include "result/hdf5_values.h"

namespace trainsuite {

namespace {

constexpr std::array statuses = {"ok", "oom", "failed", "timeout", "skipped"};

void put_ranks(H5::H5Object& place, const CaseRecord& record) {
  std::vector<std::int64_t> ranks;
  for (const RankRecord& rank : record.ranks) ranks.push_back(rank.rank);
  put_integers(place, "ranks", ranks);
}

/// Which series of a rank: those of its steps, or its telemetry.
using SeriesList = std::vector<Series> RankRecord::*;

const Series* find_in(const std::vector<Series>& list, const std::string& name) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Series& series) { return series.name == name; });
  return at == list.end() ? nullptr : &*at;
}

/// [ranks][steps], NaN where a rank lacks the series or is shorter. Absent without a step.
void put_one_series(H5::Group& group, const CaseRecord& record, SeriesList list,
                    const Series& first) {
  std::size_t steps = 0;
  for (const RankRecord& rank : record.ranks)
    if (const Series* own = find_in(rank.*list, first.name))
      steps = std::max(steps, own->values.size());
  if (steps == 0) return;
  std::vector<double> table(record.ranks.size() * steps, NAN);
  for (std::size_t row = 0; row < record.ranks.size(); ++row)
    if (const Series* own = find_in(record.ranks[row].*list, first.name))
      std::copy(own->values.begin(), own->values.end(),
                table.begin() + static_cast<std::ptrdiff_t>(row * steps));
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it float64 skips whole numbers
  const bool whole = (first.unit == "byte" || first.unit == "token") &&
                     std::all_of(table.begin(), table.end(), [](double value) {
                       return std::fabs(value) <= exact && value == std::floor(value);
                     });
  const hsize_t dimensions[2] = {record.ranks.size(), steps};
  H5::DataSet dataset =
      group.createDataSet(first.name, whole ? H5::PredType::STD_I64LE : H5::PredType::IEEE_F64LE,
                          H5::DataSpace(2, dimensions));
  dataset.write(table.data(), H5::PredType::NATIVE_DOUBLE);
  put_text(dataset, "unit", first.unit);
  put_ranks(dataset, record);
}

void put_series(H5::Group& group, const CaseRecord& record, SeriesList list) {
  std::vector<std::string> done;
  for (const RankRecord& rank : record.ranks)
    for (const Series& series : rank.*list) {
      if (std::find(done.begin(), done.end(), series.name) != done.end()) continue;
      put_one_series(group, record, list, series);
      done.push_back(series.name);
    }
}

/// Absent where no rank was sampled.
void put_telemetry(H5::Group& group, const CaseRecord& record) {
  const bool any = std::any_of(record.ranks.begin(), record.ranks.end(),
                               [](const RankRecord& rank) { return !rank.telemetry.empty(); });
  if (!any) return;
  H5::Group telemetry = group.createGroup("telemetry");
  put_series(telemetry, record, &RankRecord::telemetry);
}

std::optional<Value> find_fact(const RankRecord& rank, const std::string& name) {
  auto at = std::find_if(rank.facts.rbegin(), rank.facts.rend(),
                         [&](const Setting& fact) { return fact.name == name; });
  if (at == rank.facts.rend()) return std::nullopt;
  return at->value;
}

void put_facts(H5::Group& group, const CaseRecord& record) {
  std::vector<std::string> names;
  for (const RankRecord& rank : record.ranks)
    for (const Setting& fact : rank.facts)
      if (std::find(names.begin(), names.end(), fact.name) == names.end())
        names.push_back(fact.name);
  if (names.empty()) return;
  H5::Group facts = group.createGroup("rank_facts");
  put_ranks(facts, record);
  for (const std::string& name : names) {
    std::vector<std::optional<Value>> values;
    for (const RankRecord& rank : record.ranks) values.push_back(find_fact(rank, name));
    H5::DataSet dataset = put_column(facts, name, values);
    if (dataset.getTypeClass() != H5T_STRING) put_text(dataset, "unit", unit_of(name));
    put_ranks(dataset, record);
  }
}

void put_warmup(H5::Group& group, const std::vector<std::uint8_t>& warmup) {
  if (warmup.empty()) return;
  const hsize_t dimensions[1] = {warmup.size()};
  group.createDataSet("warmup", H5::PredType::STD_U8LE, H5::DataSpace(1, dimensions))
      .write(warmup.data(), H5::PredType::NATIVE_UINT8);
}

std::vector<std::string> sorted_names(const Settings& settings) {
  std::vector<std::string> names;
  for (const Setting& setting : settings) names.push_back(setting.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// Attributes of a row that no setting can take.
bool is_reserved(const Setting& setting) {
  return setting.name == "ranks" || setting.name == "result_names";
}

H5::Group open_or_create(H5::H5File& file, const std::string& path) {
  return file.nameExists(path) ? file.openGroup(path) : file.createGroup(path);
}

std::vector<std::string> members(const H5::Group& group) {
  std::vector<std::string> names;
  for (hsize_t index = 0; index < group.getNumObjs(); ++index)
    names.push_back(group.getObjnameByIdx(index));
  return names;
}

}  // namespace

void put_root(H5::H5File& file, const std::string& file_id) {
  H5::Group root = file.openGroup("/");
  put_value(root, "schema", std::string("trainsuite"));
  put_value(root, "schema_version", std::int64_t{schema_version});
  put_value(root, "complete", false);
  put_value(root, "file_id", file_id);
}

void put_run(H5::H5File& file, std::int64_t number, const RunRecord& run) {
  open_or_create(file, "runs");
  H5::Group group = file.createGroup(fmt::format("runs/{}", number));
  Settings attributes = run.attributes;
  attributes.push_back({"created_utc", run.created_utc});
  put_values(group, attributes);
  put_texts(group, "argv", run.argv);
  put_texts(group, "planned", run.planned);
  put_run_tables(group, run);
}

std::string case_path(const CaseRecord& record) {
  for (const std::string& part : {record.suite, record.name})
    if (part.empty() || part.find('/') != std::string::npos || part == "." || part == ".." ||
        part == "runs")
      fail("'{}' cannot name a suite or a case", part);
  return fmt::format("{}/{}/{}", record.suite, record.name, record.repeat);
}

void put_case(H5::H5File& file, std::int64_t run_number, const CaseRecord& record) {
  const std::string path = case_path(record);
  if (std::find(statuses.begin(), statuses.end(), record.status) == statuses.end())
    fail("{}: status '{}' is none of ok, oom, failed, timeout, skipped", path, record.status);
  open_or_create(file, record.suite);
  open_or_create(file, record.suite + "/" + record.name);
  H5::Group group = file.createGroup(path);
  Settings attributes = record.settings;
  attributes.insert(attributes.end(), record.results.begin(), record.results.end());
  attributes.push_back({"run", run_number});
  attributes.push_back({"status", record.status});
  attributes.push_back({"reason", record.reason});
  std::erase_if(attributes, is_reserved);
  put_values(group, attributes);
  put_texts(group, "result_names", sorted_names(record.results));
  put_ranks(group, record);
  if (!record.checks.empty()) {
    H5::Group check = group.createGroup("check");
    put_values(check, record.checks);
  }
  put_warmup(group, record.warmup);
  put_series(group, record, &RankRecord::series);
  put_telemetry(group, record);
  put_facts(group, record);
}

void set_complete(H5::H5File& file, bool complete) {
  const std::uint8_t byte = complete ? 1 : 0;
  file.openGroup("/").openAttribute("complete").write(H5::PredType::NATIVE_UINT8, &byte);
}

void copy_cases(H5::H5File& source, H5::H5File& target) {
  for (const std::string& suite : members(source.openGroup("/"))) {
    if (suite == "runs") continue;
    open_or_create(target, suite);
    for (const std::string& name : members(source.openGroup(suite))) {
      const std::string parent = suite + "/" + name;
      open_or_create(target, parent);
      for (const std::string& repeat : members(source.openGroup(parent))) {
        const std::string path = parent + "/" + repeat;
        if (target.nameExists(path)) continue;
        if (H5Ocopy(source.getId(), path.c_str(), target.getId(), path.c_str(), H5P_DEFAULT,
                    H5P_DEFAULT) < 0)
          fail("cannot copy {} between result files", path);
      }
    }
  }
}

}  // namespace trainsuite
