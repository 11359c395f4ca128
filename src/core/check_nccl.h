#pragma once
#include <nccl.h>

#include "core/error.h"

namespace trainsuite {

/// Throws Error when `code` is neither ncclSuccess nor ncclInProgress (a non-blocking
/// communicator answers the latter for work under way; its owner polls).
inline void check_nccl(ncclResult_t code, const char* what) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  fail("{}: {}", what, ncclGetErrorString(code));
}

}  // namespace trainsuite
