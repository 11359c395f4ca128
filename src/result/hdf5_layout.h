#pragma once
// How records lie in HDF5, schema 1 (docs/schema.md). analysis/results_layout.py is its twin.
#include <H5Cpp.h>

#include <string>

#include "result/record.h"

namespace trainsuite {

inline constexpr int schema_version = 1;

/// The root's attributes; `file_id` ties part files to their main file.
void put_root(H5::H5File& file, const std::string& file_id);
/// /runs/<number>
void put_run(H5::H5File& file, std::int64_t number, const RunRecord& run);
/// /<suite>/<case>/<repeat>
void put_case(H5::H5File& file, std::int64_t run_number, const CaseRecord& record);
/// The path of a row's group. Throws Error for names that HDF5 cannot hold.
std::string case_path(const CaseRecord& record);
/// Sets the root's `complete`.
void set_complete(H5::H5File& file, bool complete);
/// Copies every case of `source` that `target` lacks.
void copy_cases(H5::H5File& source, H5::H5File& target);

}  // namespace trainsuite
