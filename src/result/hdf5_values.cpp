#include "result/hdf5_values.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace trainsuite {

namespace {

/// A zero byte would end the text early in HDF5.
std::string clean(const std::string& text) {
  std::string cleaned;
  for (char letter : text) {
    if (letter == '\0')
      cleaned += "\xef\xbf\xbd";  // the replacement character
    else
      cleaned += letter;
  }
  return cleaned;
}

std::vector<std::string> clean(const std::vector<std::string>& texts) {
  std::vector<std::string> cleaned;
  for (const std::string& text : texts) cleaned.push_back(clean(text));
  return cleaned;
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const std::string& text : texts) result.push_back(text.c_str());
  return result;
}

H5::DataSpace line_of(std::size_t length) {
  const hsize_t dimensions[1] = {length};
  return H5::DataSpace(1, dimensions);
}

void put_scalar(H5::H5Object& place, const std::string& name, const H5::DataType& stored,
                const H5::DataType& native, const void* value) {
  place.createAttribute(name, stored, H5::DataSpace(H5S_SCALAR)).write(native, value);
}

double as_double(const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}

std::string as_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return fmt::format("{}", as_double(value));
}

H5::DataSet put_text_column(H5::Group& group, const std::string& name,
                            const std::vector<std::string>& texts) {
  const std::vector<std::string> cleaned = clean(texts);
  const std::vector<const char*> lines = pointers(cleaned);
  H5::DataSet dataset = group.createDataSet(name, text_type(), line_of(lines.size()));
  dataset.write(lines.data(), text_type());
  return dataset;
}

template <class Number, class Convert>
H5::DataSet put_numbers(H5::Group& group, const std::string& name, const H5::PredType& stored,
                        const H5::PredType& native, const std::vector<std::optional<Value>>& values,
                        Convert convert) {
  std::vector<Number> numbers;
  for (const auto& value : values) numbers.push_back(convert(value));
  H5::DataSet dataset = group.createDataSet(name, stored, line_of(numbers.size()));
  dataset.write(numbers.data(), native);
  return dataset;
}

template <class Kind>
bool all_are(const std::vector<std::optional<Value>>& values) {
  return std::all_of(values.begin(), values.end(), [](const auto& value) {
    return value && std::holds_alternative<Kind>(*value);
  });
}

}  // namespace

H5::StrType text_type() {
  H5::StrType type(H5::PredType::C_S1, H5T_VARIABLE);
  type.setCset(H5T_CSET_UTF8);
  return type;
}

std::string unit_of(const std::string& name) {
  if (name.ends_with("_seconds")) return "s";
  if (name.ends_with("_bytes") || name.starts_with("weight_bytes_")) return "byte";
  if (name.ends_with("_joules")) return "J";
  if (name == "tokens" || name.ends_with("_tokens")) return "token";
  return "1";
}

void put_text(H5::H5Object& place, const std::string& name, const std::string& text) {
  const std::string cleaned = clean(text);
  const char* letters = cleaned.c_str();
  put_scalar(place, name, text_type(), text_type(), &letters);
}

void put_value(H5::Group& group, const std::string& name, const Value& value) {
  if (const auto* truth = std::get_if<bool>(&value)) {
    const std::uint8_t byte = *truth ? 1 : 0;
    put_scalar(group, name, H5::PredType::STD_U8LE, H5::PredType::NATIVE_UINT8, &byte);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    put_scalar(group, name, H5::PredType::STD_I64LE, H5::PredType::NATIVE_INT64, whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    put_scalar(group, name, H5::PredType::IEEE_F64LE, H5::PredType::NATIVE_DOUBLE, real);
  } else if (const std::string text = clean(std::get<std::string>(value));
             text.size() <= attribute_limit_bytes) {
    put_text(group, name, text);
  } else {
    const char* letters = text.c_str();
    group.createDataSet(name, text_type(), H5::DataSpace(H5S_SCALAR)).write(&letters, text_type());
  }
}

void put_values(H5::Group& group, const Settings& values) {
  std::map<std::string, Value> last;
  for (const Setting& setting : values) last[setting.name] = setting.value;
  for (const auto& [name, value] : last) put_value(group, name, value);
}

void put_texts(H5::Group& group, const std::string& name, const std::vector<std::string>& texts) {
  const std::vector<std::string> cleaned = clean(texts);
  std::size_t bytes = 0;
  for (const std::string& text : cleaned) bytes += text.size() + 16;
  if (bytes > attribute_limit_bytes) {
    put_text_column(group, name, texts);
    return;
  }
  std::vector<const char*> lines = pointers(cleaned);
  H5::Attribute attribute = group.createAttribute(name, text_type(), line_of(lines.size()));
  if (!lines.empty()) attribute.write(text_type(), lines.data());
}

void put_integers(H5::H5Object& place, const std::string& name,
                  const std::vector<std::int64_t>& values) {
  if (values.empty() || values.size() * sizeof(values[0]) > attribute_limit_bytes) return;
  place.createAttribute(name, H5::PredType::STD_I64LE, line_of(values.size()))
      .write(H5::PredType::NATIVE_INT64, values.data());
}

H5::DataSet put_column(H5::Group& group, const std::string& name,
                       const std::vector<std::optional<Value>>& values) {
  const bool has_text = std::any_of(values.begin(), values.end(), [](const auto& value) {
    return value && std::holds_alternative<std::string>(*value);
  });
  if (has_text) {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.push_back(value ? as_text(*value) : "");
    return put_text_column(group, name, texts);
  }
  if (all_are<bool>(values))
    return put_numbers<std::uint8_t>(
        group, name, H5::PredType::STD_U8LE, H5::PredType::NATIVE_UINT8, values,
        [](const auto& value) { return std::uint8_t{std::get<bool>(*value)}; });
  if (all_are<std::int64_t>(values))
    return put_numbers<std::int64_t>(
        group, name, H5::PredType::STD_I64LE, H5::PredType::NATIVE_INT64, values,
        [](const auto& value) { return std::get<std::int64_t>(*value); });
  return put_numbers<double>(group, name, H5::PredType::IEEE_F64LE, H5::PredType::NATIVE_DOUBLE,
                             values,
                             [](const auto& value) { return value ? as_double(*value) : NAN; });
}

}  // namespace trainsuite
