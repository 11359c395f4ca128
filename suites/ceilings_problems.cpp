#include "ceilings_problems.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>

#include "result/ceilings.h"

namespace trainsuite {
namespace {

/// Random data: multiplying zeros takes less power, so clocks and rates would be too high.
class Product final : public Problem {
 public:
  Product(const Case& work, std::int64_t rows, at::Device device)
      : tf32_(work.precision == "tf32"), bf16_(work.precision == "bf16") {
    const auto options =
        at::TensorOptions().device(device).dtype(bf16_ ? at::kBFloat16 : at::kFloat);
    auto generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(static_cast<std::uint64_t>(work.seed));
    a_ = at::empty({rows, rows}, options).normal_(0, 1, generator);
    b_ = at::empty({rows, rows}, options).normal_(0, 1, generator);
    product_ = at::empty({rows, rows}, options);
  }

  void run() override { at::mm_out(product_, a_, b_); }

  /// The first rows against fp64. Each product's rounding is at most the dtype's; their sum grows
  /// with the root of the length, and a result that belongs to other data is off by the root
  /// itself.
  double wrong_values() override {
    constexpr std::int64_t checked_rows = 4;
    const auto exact = at::mm(a_.narrow(0, 0, checked_rows).to(at::kDouble), b_.to(at::kDouble));
    const double scale = std::sqrt(static_cast<double>(a_.size(0)));
    const double tolerance = (bf16_ ? 0.05 : tf32_ ? 0.01 : 1e-4) * scale;
    const auto error = (product_.narrow(0, 0, checked_rows).to(at::kDouble) - exact).abs();
    return error.le(tolerance).logical_not().sum().item<double>();  // NaN is wrong
  }

 private:
  bool tf32_, bf16_;
  at::Tensor a_, b_, product_;
};

class Copy final : public Problem {
 public:
  Copy(const std::string& recipe, std::int64_t bytes, at::Device device)
      : pinned_(recipe.ends_with("-pinned")) {
    const bool from_host = recipe.starts_with("copy-host"),
               to_host = recipe.find("to-host") != std::string::npos;
    const auto place = [&](bool host) {
      const auto options = at::TensorOptions(at::kLong).device(host ? at::kCPU : device);
      return options.pinned_memory(host && pinned_);
    };
    from_ = at::empty({bytes / 8}, place(from_host));
    to_ = at::zeros({bytes / 8}, place(to_host));
    at::arange_out(from_, bytes / 8);
  }
  void run() override { to_.copy_(from_, /*non_blocking=*/pinned_); }
  double wrong_values() override { return to_.ne(from_.to(to_.device())).sum().item<double>(); }

 private:
  bool pinned_;
  at::Tensor from_, to_;
};

/// Small whole numbers that differ by rank and place: sums are exact, and a value in another's
/// place is seen.
at::Tensor numbers(int rank, std::int64_t elements, at::Device device) {
  const auto index = at::arange(elements, at::TensorOptions(at::kLong).device(device));
  return index.add(rank).remainder(7).add(rank).to(at::kFloat);
}

at::Tensor sum_of_numbers(int ranks, std::int64_t elements, at::Device device) {
  auto sum = numbers(0, elements, device);
  for (int rank = 1; rank < ranks; ++rank) sum += numbers(rank, elements, device);
  return sum;
}

class Collective final : public Problem {
 public:
  Collective(CeilingKind kind, std::int64_t bytes, at::Device device, Communicator& communicator)
      : kind_(kind), device_(device), comm_(communicator), elements_(bytes / 4) {
    const std::int64_t ranks = comm_.size(), part = elements_ / ranks;
    if (kind_ == CeilingKind::all_gather) {
      mine_ = numbers(comm_.rank(), part, device);
      result_ = at::zeros({ranks, part}, mine_.options());
    } else {
      mine_ = numbers(comm_.rank(), elements_, device).view({ranks, part});
      result_ = at::zeros({part}, mine_.options());
    }
  }

  void run() override {
    if (kind_ == CeilingKind::all_gather) return comm_.all_gather(mine_, result_);
    if (kind_ == CeilingKind::reduce_scatter) return comm_.reduce_scatter(mine_, result_);
    comm_.all_reduce(mine_);
  }

  /// Repeating an all-reduce in place multiplies it: the check runs one more from fresh numbers.
  double wrong_values() override {
    const int ranks = comm_.size();
    if (kind_ == CeilingKind::all_reduce) {
      mine_.copy_(numbers(comm_.rank(), elements_, device_).view_as(mine_));
      comm_.all_reduce(mine_);
      comm_.synchronize();
      return differing(mine_, sum_of_numbers(ranks, elements_, device_).view_as(mine_));
    }
    comm_.synchronize();
    if (kind_ == CeilingKind::reduce_scatter) {
      return differing(
          result_,
          sum_of_numbers(ranks, elements_, device_).view_as(mine_).select(0, comm_.rank()));
    }
    double wrong = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      wrong += differing(result_.select(0, rank), numbers(rank, elements_ / ranks, device_));
    }
    return wrong;
  }

 private:
  static double differing(const at::Tensor& a, const at::Tensor& b) {
    return a.ne(b).sum().item<double>();
  }
  CeilingKind kind_;
  at::Device device_;
  Communicator& comm_;
  std::int64_t elements_;
  at::Tensor mine_, result_;
};

/// Both directions at once between this rank and `peer`.
class Exchange final : public Problem {
 public:
  Exchange(std::int64_t bytes, at::Device device, Communicator& communicator, int peer)
      : comm_(communicator), peer_(peer), mine_(numbers(comm_.rank(), bytes / 4, device)) {
    theirs_ = at::zeros_like(mine_);
  }
  void run() override { comm_.exchange(mine_, theirs_, peer_); }
  double wrong_values() override {
    comm_.synchronize();
    return theirs_.ne(numbers(peer_, mine_.numel(), mine_.device())).sum().item<double>();
  }

 private:
  Communicator& comm_;
  int peer_;
  at::Tensor mine_, theirs_;
};

}  // namespace

std::unique_ptr<Problem> make_problem(const Case& work, std::int64_t size, at::Device device,
                                      Communicator* communicator) {
  const auto kind = *ceiling_kind(work.recipe);
  if (kind == CeilingKind::matmul) return std::make_unique<Product>(work, size, device);
  if (is_collective(kind)) {
    return std::make_unique<Collective>(kind, size, device, *communicator);
  }
  return std::make_unique<Copy>(work.recipe, size, device);
}

std::unique_ptr<Problem> make_exchange(std::int64_t bytes, c10::Device device,
                                       Communicator& communicator, int peer) {
  return std::make_unique<Exchange>(bytes, device, communicator, peer);
}

}  // namespace trainsuite
