#include "result/ceilings_file.h"

#include <H5Cpp.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/hdf5_image.h"
#include "result/hdf5_values.h"
#include "result/statistics.h"

namespace trainsuite {
namespace {

std::string text_attribute(const H5::Group& group, const char* name) {
  if (!group.attrExists(name)) return {};
  std::string text;
  const auto attribute = group.openAttribute(name);
  if (attribute.getTypeClass() != H5T_STRING) return {};
  attribute.read(attribute.getStrType(), text);
  return text;
}

std::vector<std::string> members(const H5::Group& group) {
  std::vector<std::string> names;
  for (hsize_t index = 0; index < group.getNumObjs(); ++index) {
    names.push_back(group.getObjnameByIdx(index));
  }
  return names;
}

void add_row(const H5::Group& row, const std::string& name, std::vector<MeasuredCeiling>& all) {
  constexpr const char* rate = "ceiling_flops_per_second";
  if (text_attribute(row, "status") != "ok" || !row.attrExists(rate)) return;
  MeasuredCeiling one{text_attribute(row, "device_name"), text_attribute(row, "precision"), 0,
                      name};
  row.openAttribute(rate).read(H5::PredType::NATIVE_DOUBLE, &one.flops_per_second);
  if (one.flops_per_second > 0) all.push_back(std::move(one));
}

}  // namespace

std::vector<MeasuredCeiling> read_ceilings(const std::string& path) {
  std::vector<MeasuredCeiling> all;
  try {
    read_image(read_whole(path), [&](H5::H5File& file) {
      if (text_attribute(file.openGroup("/"), "schema") != "trainsuite") {
        fail<UsageError>("--ceilings {}: not a trainsuite result file", path);
      }
      if (!file.nameExists("ceilings")) return;
      const H5::Group suite = file.openGroup("ceilings");
      for (const auto& name : members(suite)) {
        const H5::Group repeats = suite.openGroup(name);
        for (const auto& repeat : members(repeats)) add_row(repeats.openGroup(repeat), name, all);
      }
    });
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    fail<UsageError>("--ceilings {}: it cannot be read as a result file ({})", path, error.what());
  }
  return all;
}

std::optional<double> product_ceiling(const std::vector<MeasuredCeiling>& all,
                                      const std::string& device_name,
                                      const std::string& precision) {
  std::map<std::string, std::vector<double>> rates;
  for (const MeasuredCeiling& one : all) {
    if (one.device_name == device_name && one.precision == precision) {
      rates[one.case_name].push_back(one.flops_per_second);
    }
  }
  std::optional<double> fastest;
  for (auto& [name, repeats] : rates) {
    fastest = std::max(fastest.value_or(0), quantile(std::move(repeats), 0.5));
  }
  return fastest;
}

}  // namespace trainsuite
