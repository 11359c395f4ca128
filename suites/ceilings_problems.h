#pragma once
// What the ceilings suite repeats, and how its results are checked.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "run/case.h"

namespace trainsuite {

/// One problem: what is repeated, and how many of its results are wrong.
class Problem {
 public:
  virtual ~Problem() = default;
  virtual void run() = 0;
  virtual double wrong_values() = 0;
};

/// A product, a copy or a collective of that size (rows, or bytes); `communicator` may be null for
/// those that do not communicate.
std::unique_ptr<Problem> make_problem(const Case& work, std::int64_t size, c10::Device device,
                                      Communicator* communicator);
/// Sends `bytes` to rank `peer` and receives as many from it.
std::unique_ptr<Problem> make_exchange(std::int64_t bytes, c10::Device device,
                                       Communicator& communicator, int peer);

}  // namespace trainsuite
