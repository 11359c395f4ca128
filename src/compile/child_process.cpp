#include "compile/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.h"

extern char** environ;

namespace trainsuite {
namespace {

constexpr auto poll_interval = std::chrono::milliseconds(20);

std::vector<std::string> merged_environment(const ChildCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    // A child that found an MPI session's variables would take itself for one of its ranks.
    bool keep = !name.starts_with("OMPI_COMM_") && !name.starts_with("PMIX_");
    for (const auto& [set, value] : command.environment) keep = keep && set != name;
    if (keep) all.push_back(text);
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

pid_t start(const ChildCommand& command) {
  auto words = command.words;
  auto environment = merged_environment(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, words[0].c_str(), &actions, &attributes,
                                 pointers(words).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail("cannot start {}: {}", words[0], std::strerror(error));
  return child;
}

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

int run_child(const ChildCommand& command, const std::function<void()>& watch) {
  const pid_t child = start(command);
  int wait_status = 0;
  try {
    while (true) {
      const pid_t ended = waitpid(child, &wait_status, WNOHANG);
      if (ended == child) return status_of(wait_status);
      if (ended < 0 && errno != EINTR) fail("lost sight of {}", command.words[0]);
      watch();
      std::this_thread::sleep_for(poll_interval);
    }
  } catch (...) {
    kill(-child, SIGKILL);
    waitpid(child, &wait_status, 0);
    throw;
  }
}

std::string output_of(const std::vector<std::string>& words, double limit_seconds) {
  std::string file = (std::filesystem::temp_directory_path() / "trainsuite-XXXXXX").string();
  const int handle = mkstemp(file.data());
  if (handle < 0) fail("cannot make a file in the temporary folder: {}", std::strerror(errno));
  close(handle);
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(limit_seconds);
  int status = 1;
  try {
    status = run_child({words, {}, file}, [&] {
      if (std::chrono::steady_clock::now() - start > limit) fail("{} takes too long", words[0]);
    });
  } catch (const Error&) {  // no answer
  }
  std::stringstream content;
  content << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  return status == 0 ? content.str() : std::string();
}

}  // namespace trainsuite
