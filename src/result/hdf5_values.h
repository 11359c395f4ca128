#pragma once
// Single values, texts and columns in HDF5, as schema 1 stores them (docs/schema.md).
#include <H5Cpp.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/setting.h"

namespace trainsuite {

/// What may grow beyond this is a dataset: HDF5 ends attributes at 64 KB.
inline constexpr std::size_t attribute_limit_bytes = 60'000;

/// UTF-8 of variable length.
H5::StrType text_type();

/// The unit that a scalar's name says: s, byte, token, J or 1.
std::string unit_of(const std::string& name);

/// A scalar attribute of a group or dataset: bool as uint8, int64, float64 or text. Long text of
/// a group becomes a dataset of that name.
void put_value(H5::Group& group, const std::string& name, const Value& value);
/// Every value; of several of one name the last counts.
void put_values(H5::Group& group, const Settings& values);

/// A text attribute.
void put_text(H5::H5Object& place, const std::string& name, const std::string& text);
/// An attribute [n] of texts; a dataset of that name where large.
void put_texts(H5::Group& group, const std::string& name, const std::vector<std::string>& texts);
/// An attribute [n]; left out where too large for one.
void put_integers(H5::H5Object& place, const std::string& name,
                  const std::vector<std::int64_t>& values);

/// A dataset over ranks, NaN (or empty text) where a rank has no value; float64 where the ranks'
/// types differ.
H5::DataSet put_column(H5::Group& group, const std::string& name,
                       const std::vector<std::optional<Value>>& values);

}  // namespace trainsuite
