#pragma once
// What a reader of a row must know before trusting its figures, a sentence each.
#include <string>
#include <vector>

#include "result/record.h"

namespace trainsuite {

/// A trend over the steps, outliers, a rank that the others wait for, throttling, a shared GPU, a
/// rate above the machine's ceiling. Empty for rows that are not ok.
std::vector<std::string> row_notes(const CaseRecord& record);

}  // namespace trainsuite
