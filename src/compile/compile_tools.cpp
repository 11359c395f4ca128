#include "compile/compile_tools.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "compile/child_process.h"
#include "core/error.h"
#include "model/attention.h"

namespace trainsuite {
namespace {

namespace fs = std::filesystem;

/// The shared library that holds `function`.
template <class Function>
fs::path library_of(Function* function) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const auto path = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : path;
}

bool is_program(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

fs::path find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? fs::path(name) : fs::path();
  const char* folders = std::getenv("PATH");
  std::istringstream list(folders ? folders : "/usr/bin:/bin");
  for (std::string folder; std::getline(list, folder, ':');) {
    if (is_program(fs::path(folder) / name)) return fs::path(folder) / name;
  }
  return {};
}

std::string version_in(const fs::path& torch_folder) {
  std::ifstream file(torch_folder / "version.py");
  const std::regex version("^__version__ = ['\"]([^'\"]+)['\"].*");
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (std::regex_match(line, match, version)) return match[1];
  }
  return {};
}

/// Beside the binary (build tree), or installed under share/, or where a variable says.
fs::path find_capture() {
  if (const char* given = std::getenv("TRAINSUITE_CAPTURE")) return given;
  std::error_code error;
  const auto binary = fs::read_symlink("/proc/self/exe", error);
  std::vector<fs::path> places;
  for (auto folder = binary.parent_path(); folder != folder.root_path();
       folder = folder.parent_path()) {
    places.push_back(folder / "share/trainsuite/compile/capture.py");
    places.push_back(folder / "src/compile/capture.py");
  }
  for (const auto& place : places) {
    if (fs::is_regular_file(place, error)) return place;
  }
  return {};
}

/// The Python whose environment holds the torch that this process runs with, else the one on PATH.
fs::path find_python(const fs::path& torch_folder) {
  // <environment>/lib/python3.x/site-packages/torch
  const auto environment = torch_folder.parent_path().parent_path().parent_path().parent_path();
  for (const char* name : {"python3", "python"}) {
    if (is_program(environment / "bin" / name)) return environment / "bin" / name;
  }
  return find_program("python3");
}

void check_python(const CompileTools& tools) {
  const char* script =
      "import importlib.util as u; s = u.find_spec('torch'); "
      "print(s.submodule_search_locations[0] if s else '')";
  const auto answer = output_of({tools.python, "-c", script}, /*limit_seconds=*/30);
  const auto folder = answer.substr(0, answer.find('\n'));
  if (folder.empty()) {
    fail<UsageError>("compiled rows need torch {} in {}, which has none", tools.torch_version,
                     tools.python.string());
  }
  const auto version = version_in(folder);
  if (version != tools.torch_version) {
    fail<UsageError>("compiled rows need torch {} in {}, which has {}", tools.torch_version,
                     tools.python.string(), version);
  }
}

}  // namespace

CompileTools find_compile_tools() {
  CompileTools tools;
  const auto torch_folder = library_of(&aoti_torch_device_type_cpu).parent_path().parent_path();
  tools.python = find_python(torch_folder);
  tools.capture = find_capture();
  tools.ops_library = library_of(&use_attention);
  tools.torch_version = version_in(torch_folder);
  return tools;
}

void check_compile_tools(const CompileTools& tools) {
  if (tools.capture.empty()) {
    fail<UsageError>(
        "compiled rows need capture.py, which is not installed with this trainsuite;"
        " name it in TRAINSUITE_CAPTURE");
  }
  std::error_code error;
  if (!fs::is_regular_file(tools.capture, error)) {
    fail<UsageError>("TRAINSUITE_CAPTURE names {}, which is no file", tools.capture.string());
  }
  if (tools.python.empty()) {
    fail<UsageError>("compiled rows need Python with torch {}, and no python3 is on PATH",
                     tools.torch_version);
  }
  const char* given = std::getenv("CXX");
  const std::string compiler = given && *given ? given : "g++";
  if (find_program(compiler).empty()) {
    fail<UsageError>(
        "compiled rows need a C++ compiler, and '{}' is not on PATH; install g++ or name one in "
        "CXX",
        compiler);
  }
  check_python(tools);
}

void check_executable_folder(const fs::path& folder, const std::string& purpose) {
  std::error_code error;
  fs::create_directories(folder, error);
  const auto file = folder / fmt::format(".executable-{}", getpid());
  const int handle = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0700);
  if (handle < 0) {
    fail<UsageError>("cannot write to {} ({}), the folder of {}", folder.string(),
                     std::strerror(errno), purpose);
  }
  const bool written = write(handle, "code", 4) == 4;
  void* code =
      written ? mmap(nullptr, 4, PROT_READ | PROT_EXEC, MAP_PRIVATE, handle, 0) : MAP_FAILED;
  const int reason = errno;
  if (code != MAP_FAILED) munmap(code, 4);
  close(handle);
  fs::remove(file, error);
  if (code == MAP_FAILED) {
    fail<UsageError>("cannot run code from {} ({}), the folder of {}", folder.string(),
                     std::strerror(reason), purpose);
  }
}

std::string hash_of_text(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string hash_of_file(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  if (!stream) fail("cannot read {}", file.string());
  return hash_of_text(content.str());
}

}  // namespace trainsuite
