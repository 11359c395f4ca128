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

/// Measured repetitions of one size between two groups.
struct TimedPair {
  PairPoint point;
  std::vector<double> seconds;
  int ranks = 0;
};

void add_pair_repetition(const CaseRecord& record, std::size_t step, std::vector<TimedPair>& all) {
  double slowest = NAN, wrong = 0;
  int ranks = 0;
  for (const RankRecord& rank : record.ranks) {
    const double own = at(find_series(rank, "step_seconds"), step);
    if (std::isnan(own)) continue;
    ++ranks;
    slowest = std::fmax(slowest, own);
    wrong += at(find_series(rank, "wrong_values"), step);
  }
  const auto value = [&](const char* name) {
    return at(find_series(record.ranks.front(), name), step);
  };
  const double size = value("problem_size"), a = value("pair_a"), b = value("pair_b");
  if (std::isnan(slowest) || std::isnan(size) || std::isnan(a) || std::isnan(b)) return;
  auto known = std::find_if(all.begin(), all.end(), [&](const TimedPair& one) {
    return one.point.a == a && one.point.b == b && one.point.size == size;
  });
  if (known == all.end()) {
    TimedPair fresh{{static_cast<int>(a), static_cast<int>(b), size, 0, 0, 0}, {}, ranks};
    known = all.insert(all.end(), std::move(fresh));
  }
  known->seconds.push_back(slowest);
  known->point.wrong_values += wrong;
}

}  // namespace

std::optional<CeilingKind> ceiling_kind(const std::string& recipe) {
  static const std::array kinds{std::pair{"matmul", CeilingKind::matmul},
                                std::pair{"copy-device-to-", CeilingKind::host_copy},
                                std::pair{"copy-device", CeilingKind::device_copy},
                                std::pair{"copy-", CeilingKind::host_copy},
                                std::pair{"pairs", CeilingKind::pairs},
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
  if (!kind || kind == CeilingKind::pairs || record.status != "ok" || record.ranks.empty()) {
    return {};
  }
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

std::vector<PairPoint> pair_points(const CaseRecord& record) {
  if (record.status != "ok" || record.ranks.empty()) return {};
  std::vector<TimedPair> all;
  for (std::size_t step = 0; step < record.warmup.size(); ++step) {
    if (record.warmup[step] == 0) add_pair_repetition(record, step, all);
  }
  std::vector<PairPoint> best;
  for (TimedPair& one : all) {
    one.point.seconds = quantile(one.seconds, 0.5);
    one.point.rate = one.point.size * one.ranks / 2 / one.point.seconds;
    const bool same = !best.empty() && best.back().a == one.point.a && best.back().b == one.point.b;
    if (!same) best.push_back(one.point);
    if (one.point.rate > best.back().rate) best.back() = one.point;
  }
  return best;
}

std::vector<std::vector<int>> pair_groups(const std::vector<std::string>& host_of_rank) {
  std::vector<std::string> hosts;
  std::vector<std::vector<int>> groups, alone;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    alone.push_back({static_cast<int>(rank)});
    const auto known = std::find(hosts.begin(), hosts.end(), host_of_rank[rank]);
    const auto index = static_cast<std::size_t>(known - hosts.begin());
    if (known == hosts.end()) {
      hosts.push_back(host_of_rank[rank]);
      groups.emplace_back();
    }
    groups[index].push_back(static_cast<int>(rank));
  }
  return groups.size() > 1 ? groups : alone;
}

std::optional<int> peer_of(int rank, const std::vector<int>& a, const std::vector<int>& b) {
  for (const auto& [own, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    const auto place = std::find(own->begin(), own->end(), rank);
    const auto index = static_cast<std::size_t>(place - own->begin());
    if (place != own->end() && index < other->size()) return (*other)[index];
  }
  return std::nullopt;
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
