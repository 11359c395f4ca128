#include "result/ceilings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "result/statistics.h"

namespace trainsuite {
namespace {

std::string text_of(const Settings& settings, const std::string& name) {
  for (auto one = settings.rbegin(); one != settings.rend(); ++one) {
    if (one->name == name && std::holds_alternative<std::string>(one->value)) {
      return std::get<std::string>(one->value);
    }
  }
  return {};
}

double at(const Series* series, std::size_t index) {
  return series != nullptr && index < series->values.size() ? series->values[index] : NAN;
}

/// Measured repetitions of one size: the slowest rank's times, and wrong values of all ranks.
struct Repetitions {
  double size = 0;
  std::vector<double> seconds;
  double wrong = 0;
};

void add_repetition(const CaseRecord& record, std::size_t step, std::vector<Repetitions>& sizes) {
  double seconds = NAN, wrong = 0;
  for (const RankRecord& rank : record.ranks) {
    seconds = std::fmax(seconds, at(find_series(rank, "step_seconds"), step));
    const double own = at(find_series(rank, "wrong_values"), step);
    if (!std::isnan(own)) wrong += own;
  }
  const double size = at(find_series(record.ranks.front(), "problem_size"), step);
  if (std::isnan(seconds) || std::isnan(size)) return;
  auto known = std::find_if(sizes.begin(), sizes.end(),
                            [&](const Repetitions& one) { return one.size == size; });
  if (known == sizes.end()) known = sizes.insert(sizes.end(), {size, {}, 0});
  known->seconds.push_back(seconds);
  known->wrong += wrong;
}

}  // namespace

std::optional<CeilingKind> ceiling_kind(const std::string& recipe) {
  static const std::array kinds{std::pair{"matmul", CeilingKind::matmul},
                                std::pair{"copy-device-to-", CeilingKind::host_copy},
                                std::pair{"copy-device", CeilingKind::device_copy},
                                std::pair{"copy-", CeilingKind::host_copy},
                                std::pair{"all-reduce", CeilingKind::all_reduce},
                                std::pair{"all-gather", CeilingKind::all_gather},
                                std::pair{"reduce-scatter", CeilingKind::reduce_scatter}};
  for (const auto& [start, kind] : kinds) {
    if (recipe.starts_with(start)) return kind;
  }
  return std::nullopt;
}

bool is_collective(CeilingKind kind) {
  return kind == CeilingKind::all_reduce || kind == CeilingKind::all_gather ||
         kind == CeilingKind::reduce_scatter;
}

std::optional<double> bus_factor(CeilingKind kind, int ranks) {
  if (!is_collective(kind) || ranks < 2) return std::nullopt;
  const double share = static_cast<double>(ranks - 1) / ranks;
  return kind == CeilingKind::all_reduce ? 2 * share : share;
}

double work_of(CeilingKind kind, double size) {
  if (kind == CeilingKind::matmul) return 2 * size * size * size;
  return kind == CeilingKind::device_copy ? 2 * size : size;
}

std::vector<CeilingPoint> ceiling_points(const CaseRecord& record) {
  const auto kind = ceiling_kind(text_of(record.settings, "recipe"));
  if (!kind || record.status != "ok" || record.ranks.empty()) return {};
  std::vector<Repetitions> sizes;
  for (std::size_t step = 0; step < record.warmup.size(); ++step) {
    if (record.warmup[step] == 0) add_repetition(record, step, sizes);
  }
  std::vector<CeilingPoint> points;
  const auto factor = bus_factor(*kind, static_cast<int>(record.ranks.size()));
  for (const Repetitions& one : sizes) {
    CeilingPoint point{one.size, quantile(one.seconds, 0.5), 0, std::nullopt, one.wrong};
    if (!(point.seconds > 0)) continue;
    point.rate = work_of(*kind, one.size) / point.seconds;
    if (factor) point.bus_rate = point.rate * *factor;
    points.push_back(point);
  }
  return points;
}

std::optional<CeilingPoint> best_point(const CaseRecord& record) {
  const auto points = ceiling_points(record);
  const auto best = std::max_element(
      points.begin(), points.end(),
      [](const CeilingPoint& a, const CeilingPoint& b) { return a.rate < b.rate; });
  if (best == points.end()) return std::nullopt;
  return *best;
}

}  // namespace trainsuite
