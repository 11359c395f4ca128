#pragma once
#include <mpi.h>

#include <string>

#include "core/error.h"

namespace trainsuite {

/// Throws Error with MPI's own text when `code` is not MPI_SUCCESS.
inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("{}: {}", what, std::string(text, static_cast<size_t>(length)));
}

}  // namespace trainsuite
