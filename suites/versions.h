#pragma once
#include <string>

#include "core/setting.h"

namespace trainsuite {

/// Versions of this build and of the libraries it runs with, recorded with each run.
Settings versions(bool cuda);
/// "trainsuite 0.1.0 (commit, torch, CUDA)".
std::string version_line();

}  // namespace trainsuite
