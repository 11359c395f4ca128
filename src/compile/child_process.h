#pragma once
// Starts another program and waits for it without hanging.
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trainsuite {

struct ChildCommand {
  std::vector<std::string> words;                                // program and arguments
  std::vector<std::pair<std::string, std::string>> environment;  // set beside this process's own
  std::filesystem::path log;  // its standard output and error, appended
};

/// Runs the program in a process group of its own until it ends; `watch` is called now and then
/// and may throw: the whole group is then killed. Returns the exit status, 128 + signal if killed.
/// Throws Error where it cannot be started.
int run_child(const ChildCommand& command, const std::function<void()>& watch);

/// Standard output of a short command; empty where it fails or takes longer.
std::string output_of(const std::vector<std::string>& words, double limit_seconds);

}  // namespace trainsuite
