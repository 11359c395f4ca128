#pragma once
// Small text helpers shared by the command line, the plan and the summary.
#include <cstddef>
#include <string>
#include <vector>

namespace trainsuite {

/// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
std::size_t edit_distance(const std::string& a, const std::string& b);

/// The candidate with the least edit distance to `word`, the first of equals; empty where none is
/// near (distance above max(2, length of word / 3), or nothing in common).
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

/// Ends a sentence about an unknown word: "; did you mean 'x'?", or "." where none is near.
std::string suggestion(const std::string& word, const std::vector<std::string>& candidates,
                       const std::string& prefix = "");

/// Shell-style match of the whole text: `*`, `?` and `[...]` as fnmatch(3).
bool glob_matches(const std::string& pattern, const std::string& text);

std::string join(const std::vector<std::string>& parts, const std::string& separator);

/// Text in quotes on one line: control characters become spaces, what is too long is cut.
std::string quoted(const std::string& text);

/// 1234567 -> "1,234,567".
std::string grouped(long long value);

/// "42 s", "3 min 05 s", "2 h 07 min".
std::string duration_text(double seconds);

/// Rows of cells as columns two blanks apart, each line ended; the first `left_columns` columns
/// are aligned left, the others right. Widths count UTF-8 characters.
std::string aligned_table(const std::vector<std::vector<std::string>>& rows,
                          std::size_t left_columns);

}  // namespace trainsuite
