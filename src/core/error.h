#pragma once
// Errors with context. Only main() ends the program; everything else throws.
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace trainsuite {

/// A failure of this run; the text names the thing and the fix. Exit status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong command line or a machine that cannot do what was asked. Exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A failure that every rank of the run knows and throws alike: it is told once. Exit status 1.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// The device's memory did not suffice.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A wait reached its deadline.
class Timeout : public Error {
 public:
  using Error::Error;
};

/// Another rank reported a failure while this one waited for it.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

/// All ranks agreed to stop here: a signal came, or the run's time is over.
class Stopped : public Error {
 public:
  using Error::Error;
};

template <class E = Error, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trainsuite
