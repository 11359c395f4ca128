// Where a result file goes, and whether it can.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/result_file.h"

namespace trainsuite {

namespace {

bool taken(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

/// A Slurm id without characters that a file name should not have.
std::string slurm_id(const char* name) {
  const char* value = std::getenv(name);
  std::string id = value == nullptr ? "" : value;
  std::erase_if(id, [](unsigned char letter) {
    const bool plain = letter < 128 && std::isalnum(letter) != 0;
    return !plain && letter != '.' && letter != '_' && letter != '-';
  });
  return id;
}

/// -<job>, or -<array job>_<task> within an array; empty outside Slurm.
std::string slurm_suffix() {
  const std::string job = slurm_id("SLURM_JOB_ID");
  const std::string array_job = slurm_id("SLURM_ARRAY_JOB_ID");
  const std::string task = slurm_id("SLURM_ARRAY_TASK_ID");
  if (!task.empty()) return fmt::format("-{}_{}", array_job.empty() ? job : array_job, task);
  return job.empty() ? "" : "-" + job;
}

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

/// access() would say yes to root where nothing can be made (/sys, a read-only mount): try it,
/// under the name that is written to first and is the longest.
void try_to_write(const std::string& path, const std::string& folder) {
  const std::string name = temporary_name(path);
  const int probe = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (probe < 0 && errno == ENAMETOOLONG)
    fail<UsageError>(
        "--out {}: the name is too long (while written, {} bytes are added to it);"
        " give a shorter one",
        path, name.size() - path.size());
  if (probe < 0)
    fail<UsageError>("--out {}: the folder '{}' is not writable ({}); choose another folder", path,
                     folder, std::strerror(errno));
  close(probe);
  unlink(name.c_str());
}

}  // namespace

std::string ResultFile::default_path(const std::string& suite) {
  if (mkdir("results", 0777) != 0 && errno != EEXIST)
    fail<UsageError>("cannot make the folder results: {}; name a file with --out",
                     std::strerror(errno));
  const std::string stem = fmt::format("results/{}-{}{}", suite, utc_time(), slurm_suffix());
  std::string path = stem + ".h5";
  for (int number = 2; taken(path) || taken(path + ".parts"); ++number)
    path = fmt::format("{}-{}.h5", stem, number);
  return path;
}

void ResultFile::check_creatable(const std::string& path) {
  const std::string folder = folder_of(path);
  struct stat status {};
  if (path.empty() || path.back() == '/')
    fail<UsageError>("--out '{}' names no file; give a file name", path);
  if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    fail<UsageError>("--out {}: the folder '{}' does not exist; create it first", path, folder);
  if (taken(path))
    fail<UsageError>(
        "--out {}: the file exists and is never overwritten; name another or remove it", path);
  if (taken(path + ".parts"))
    fail<UsageError>(
        "--out {}: '{}.parts' of an earlier run exists; name another file or remove it", path,
        path);
  try_to_write(path, folder);
}

}  // namespace trainsuite
