#include "run/order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "result/repeats.h"
#include "run/row_figures.h"
#include "run/self_check.h"

namespace trainsuite {
namespace {

/// Uniform in 0..bound-1. The standard fixes the generator but not its distributions.
std::size_t below(std::mt19937_64& generator, std::size_t bound) {
  const auto range = static_cast<std::uint64_t>(bound);
  constexpr auto top = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t limit = top - top % range;  // beyond it small remainders would be favoured
  std::uint64_t drawn = generator();
  while (drawn >= limit) drawn = generator();
  return static_cast<std::size_t>(drawn % range);
}

}  // namespace

OrderOptions order_options(const Options& options) {
  constexpr std::int64_t most_rounds = 100;
  OrderOptions order{options.repeats, options.order != "plan", options.seed, options.until_percent};
  if (order.until_percent && order.repeats == 1) order.repeats = most_rounds;
  if (options.self_check && order.repeats == 1) order.repeats = self_check_repeats;
  if (options.order == "auto") order.shuffled = order.repeats > 1;
  return order;
}

std::vector<std::size_t> round_order(std::size_t cases, std::int64_t round,
                                     const OrderOptions& options) {
  std::vector<std::size_t> order(cases);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!options.shuffled) return order;
  const auto low = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  std::seed_seq sequence{low(options.seed), low(options.seed >> 32), low(round)};
  std::mt19937_64 generator(sequence);
  for (std::size_t i = cases; i > 1; --i) std::swap(order[i - 1], order[below(generator, i)]);
  return order;
}

std::vector<Turn> turns(std::size_t cases, const OrderOptions& options) {
  std::vector<Turn> all;
  for (std::int64_t round = 0; round < options.repeats; ++round) {
    for (const std::size_t index : round_order(cases, round, options)) {
      all.push_back({index, round, static_cast<std::int64_t>(all.size())});
    }
  }
  return all;
}

bool narrow_enough(const std::vector<CaseRecord>& rows, double until_percent) {
  std::map<std::string, std::vector<double>> rates;
  for (const CaseRecord& row : rows) {
    const auto rate = row_figures(row, {}).tokens_per_second;
    if (row.status == "ok" && rate) rates[row.suite + "/" + row.name].push_back(*rate);
  }
  return std::all_of(rates.begin(), rates.end(), [&](const auto& entry) {
    const auto spread = over_repeats(entry.second);
    return spread.low && spread.half_width() <= until_percent / 100;
  });
}

void sort_as_planned(std::vector<CaseRecord>& rows, const std::vector<Case>& plan) {
  std::map<std::string, std::size_t> place;
  for (std::size_t i = 0; i < plan.size(); ++i) place.emplace(plan[i].name(), i);
  const auto at = [&](const CaseRecord& row) {
    const auto found = place.find(row.name);
    return found == place.end() ? plan.size() : found->second;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](const CaseRecord& a, const CaseRecord& b) {
    return at(a) != at(b) ? at(a) < at(b) : a.repeat < b.repeat;
  });
}

}  // namespace trainsuite
