#pragma once
// Small text helpers shared by the command line and the plan.
#include <string>
#include <vector>

namespace trainsuite {

/// The candidate with the least edit distance to `word`; empty where none is near
/// (distance above max(2, length / 3)).
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

/// Shell-style match of the whole text: `*`, `?` and `[...]` as fnmatch(3).
bool glob_matches(const std::string& pattern, const std::string& text);

std::string join(const std::vector<std::string>& parts, const std::string& separator);

}  // namespace trainsuite
