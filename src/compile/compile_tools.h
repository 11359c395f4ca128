#pragma once
// What compiling needs of the machine: Python with this torch, a C++ compiler, executable folders.
#include <filesystem>
#include <string>

namespace trainsuite {

struct CompileTools {
  std::filesystem::path python, capture, ops_library;
  std::string torch_version;  // "2.11.0+cu130", of the library this process runs with
};

/// Finds them without starting anything; what is missing is an empty path.
CompileTools find_compile_tools();

/// Throws UsageError naming what is missing or does not fit: capture.py, Python, its torch, the C++
/// compiler. Starts Python once, without importing torch.
void check_compile_tools(const CompileTools& tools);

/// Throws UsageError unless files in the folder (made if need be) can be written and their code
/// run.
void check_executable_folder(const std::filesystem::path& folder, const std::string& purpose);

/// FNV-1a, 64 bits, as 16 hexadecimal digits.
std::string hash_of_text(const std::string& text);
/// Throws Error where the file cannot be read.
std::string hash_of_file(const std::filesystem::path& file);

}  // namespace trainsuite
