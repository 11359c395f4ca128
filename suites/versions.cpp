#include "versions.h"

#include <H5public.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <mpi.h>
#include <nccl.h>

#include <fstream>

#include "build_version.h"

namespace trainsuite {
namespace {

std::string dotted_cuda(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find(','));
}

}  // namespace

Settings versions(bool cuda) {
  Settings settings{{"trainsuite_version", std::string(TRAINSUITE_VERSION)},
                    {"git_commit", std::string(TRAINSUITE_GIT_COMMIT)},
                    {"git_dirty", bool{TRAINSUITE_GIT_DIRTY}},
                    {"torch_version", std::string(TRAINSUITE_TORCH_VERSION)},
                    {"mpi_version", mpi_version()}};
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  settings.push_back({"hdf5_version", fmt::format("{}.{}.{}", major, minor, release)});
  int number = 0;
  if (cudaRuntimeGetVersion(&number) == cudaSuccess) {
    settings.push_back({"cuda_version", dotted_cuda(number)});
  }
  if (ncclGetVersion(&number) == ncclSuccess) {
    settings.push_back({"nccl_version",
                        fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)});
  }
  if (!cuda) return settings;
  if (std::ifstream in("/sys/module/nvidia/version"); in) {
    std::string driver;
    in >> driver;
    settings.push_back({"driver_version", driver});
  } else if (cudaDriverGetVersion(&number) == cudaSuccess) {
    settings.push_back({"driver_version", "CUDA " + dotted_cuda(number)});
  }
  return settings;
}

std::string version_line() {
  return fmt::format("trainsuite {} (commit {}{}, torch {})", TRAINSUITE_VERSION,
                     TRAINSUITE_GIT_COMMIT, TRAINSUITE_GIT_DIRTY ? ", modified" : "",
                     TRAINSUITE_TORCH_VERSION);
}

}  // namespace trainsuite
