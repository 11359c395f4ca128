#include "core/fault.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

constexpr std::array kinds = {"throw", "oom", "late", "hang", "exit", "kill", "nan", "assert"};
constexpr unsigned late_seconds = 10;
constexpr int exit_code = 3;

template <class Integer>
Integer parse_count(const std::string& key, const std::string& value) {
  Integer number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0) return number;
  fail<UsageError>("TRAINSUITE_FAULT: {}={} is no number from 0", key, value);
}

void set(Fault& fault, const std::string& key, const std::string& value) {
  if (key == "rank") {
    fault.rank = parse_count<int>(key, value);
  } else if (key == "step") {
    fault.step = parse_count<std::int64_t>(key, value);
  } else if (key == "kind") {
    fault.kind = value;
  } else if (key == "case") {
    fault.case_name = value;
  } else {
    fail<UsageError>("TRAINSUITE_FAULT: unknown {}; known are rank, step, kind, case", quoted(key));
  }
}

}  // namespace

Fault parse_fault(const std::string& text) {
  Fault fault;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto equals = part.find('=');
    if (equals == std::string::npos) {
      fail<UsageError>("TRAINSUITE_FAULT: {} is no KEY=VALUE", quoted(part));
    }
    set(fault, part.substr(0, equals), part.substr(equals + 1));
  }
  if (std::find(kinds.begin(), kinds.end(), fault.kind) == kinds.end()) {
    fail<UsageError>("TRAINSUITE_FAULT: unknown kind {}; known are {}", quoted(fault.kind),
                     join({kinds.begin(), kinds.end()}, ", "));
  }
  return fault;
}

std::optional<Fault> fault_of_environment() {
  const char* text = std::getenv("TRAINSUITE_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  return parse_fault(text);
}

std::string to_text(const Fault& fault) {
  return fmt::format("rank={},step={},kind={}{}{}", fault.rank, fault.step, fault.kind,
                     fault.case_name.empty() ? "" : ",case=", fault.case_name);
}

void commit(const Fault& fault) {
  if (fault.kind == "late") sleep(late_seconds);
  if (fault.kind == "throw" || fault.kind == "late")
    fail("this error was asked for (TRAINSUITE_FAULT)");
  if (fault.kind == "oom") {
    fail<OutOfMemory>("out of memory was asked for (TRAINSUITE_FAULT)");
  }
  if (fault.kind == "exit") _exit(exit_code);
  if (fault.kind == "kill") raise(SIGKILL);
  while (fault.kind == "hang") pause();  // signals do not end it
}

}  // namespace trainsuite
