#pragma once
// Reading back what hdf5_values writes.
#include <H5Cpp.h>

#include <string>
#include <vector>

#include "core/setting.h"

namespace trainsuite {

/// Every scalar attribute; arrays are left out.
Settings get_values(const H5::Group& group);
/// An array of texts, attribute or dataset; empty where there is none.
std::vector<std::string> get_texts(const H5::Group& group, const std::string& name);

/// Columns of a table /.../name; empty where there is no such table.
std::vector<std::string> get_text_column(const H5::Group& group, const std::string& table,
                                         const std::string& column);
std::vector<std::int64_t> get_integer_column(const H5::Group& group, const std::string& table,
                                             const std::string& column);

std::vector<std::string> member_names(const H5::Group& group);

}  // namespace trainsuite
