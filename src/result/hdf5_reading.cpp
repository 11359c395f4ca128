#include "result/hdf5_reading.h"

#include <optional>

#include "result/hdf5_values.h"

namespace trainsuite {
namespace {

std::string get_text(const H5::Attribute& attribute) {
  std::string text;
  attribute.read(attribute.getStrType(), text);
  return text;
}

std::optional<Value> get_value(const H5::Attribute& attribute) {
  if (attribute.getSpace().getSimpleExtentType() != H5S_SCALAR) return std::nullopt;
  const H5T_class_t kind = attribute.getTypeClass();
  if (kind == H5T_STRING) return get_text(attribute);
  if (kind == H5T_FLOAT) {
    double real = 0;
    attribute.read(H5::PredType::NATIVE_DOUBLE, &real);
    return real;
  }
  if (kind != H5T_INTEGER) return std::nullopt;
  std::int64_t whole = 0;
  attribute.read(H5::PredType::NATIVE_INT64, &whole);
  if (attribute.getIntType().getSize() == 1) return whole != 0;  // bool
  return whole;
}

/// `place` is an attribute or a dataset; both read alike but for the order of arguments.
template <class Read>
std::vector<std::string> texts_of(const H5::DataSpace& space, const H5::DataType& type, Read read) {
  const auto count = static_cast<std::size_t>(space.getSimpleExtentNpoints());
  std::vector<char*> pointers(count, nullptr);
  if (count == 0) return {};
  read(pointers.data());
  std::vector<std::string> texts;
  for (const char* pointer : pointers) texts.emplace_back(pointer == nullptr ? "" : pointer);
  H5Dvlen_reclaim(type.getId(), space.getId(), H5P_DEFAULT, pointers.data());
  return texts;
}

}  // namespace

Settings get_values(const H5::Group& group) {
  Settings values;
  for (int i = 0; i < group.getNumAttrs(); ++i) {
    const H5::Attribute attribute = group.openAttribute(static_cast<unsigned>(i));
    if (auto value = get_value(attribute)) values.push_back({attribute.getName(), *value});
  }
  return values;
}

std::vector<std::string> get_texts(const H5::Group& group, const std::string& name) {
  const H5::StrType type = text_type();
  if (group.attrExists(name)) {
    const H5::Attribute attribute = group.openAttribute(name);
    return texts_of(attribute.getSpace(), type, [&](char** to) { attribute.read(type, to); });
  }
  if (!group.nameExists(name)) return {};
  const H5::DataSet dataset = group.openDataSet(name);
  return texts_of(dataset.getSpace(), type, [&](char** to) { dataset.read(to, type); });
}

std::vector<std::string> get_text_column(const H5::Group& group, const std::string& table,
                                         const std::string& column) {
  if (!group.nameExists(table)) return {};
  const H5::DataSet dataset = group.openDataSet(table);
  H5::CompType type(sizeof(char*));  // HDF5 reads the one member that is named
  type.insertMember(column, 0, text_type());
  return texts_of(dataset.getSpace(), type, [&](char** to) { dataset.read(to, type); });
}

std::vector<std::int64_t> get_integer_column(const H5::Group& group, const std::string& table,
                                             const std::string& column) {
  if (!group.nameExists(table)) return {};
  const H5::DataSet dataset = group.openDataSet(table);
  H5::CompType type(sizeof(std::int64_t));
  type.insertMember(column, 0, H5::PredType::NATIVE_INT64);
  std::vector<std::int64_t> values(
      static_cast<std::size_t>(dataset.getSpace().getSimpleExtentNpoints()));
  if (!values.empty()) dataset.read(values.data(), type);
  return values;
}

std::vector<std::string> member_names(const H5::Group& group) {
  std::vector<std::string> names;
  for (hsize_t index = 0; index < group.getNumObjs(); ++index)
    names.push_back(group.getObjnameByIdx(index));
  return names;
}

}  // namespace trainsuite
