#include "ceilings.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "result/ceilings.h"
#include "result/statistics.h"
#include "run/plan.h"
#include "session.h"
#include "suite.h"

namespace trainsuite {
namespace {

struct Recipe {
  const char* name;
  const char* precision;
  bool gpu_only;
  const char* what;
};
constexpr Recipe recipes[] = {
    {"matmul-bf16", "bf16", false, "square products, bf16, every rank at once"},
    {"matmul-tf32", "tf32", true, "square products, fp32 data multiplied as tf32"},
    {"matmul-fp32", "fp32", false, "square products, fp32 throughout"},
    {"copy-device", "bytes", false, "within the device's memory, bytes read and written"},
    {"copy-host-to-device-pinned", "bytes", true, "from page-locked host memory"},
    {"copy-device-to-host-pinned", "bytes", true, "to page-locked host memory"},
    {"copy-host-to-device-pageable", "bytes", true, "from ordinary host memory"},
    {"copy-device-to-host-pageable", "bytes", true, "to ordinary host memory"},
    {"all-reduce", "fp32", false, "sum over the ranks, in place"},
    {"all-gather", "fp32", false, "every rank's part to all ranks"},
    {"reduce-scatter", "fp32", false, "sum over the ranks, a part to each"},
};
constexpr Recipe pairs_recipe = {
    "pairs", "fp32", false, "each pair of nodes (on one node: of ranks), both directions at once"};

Case make_case(const std::string& size, const Recipe& recipe, const Options& options, bool cuda,
               int ranks) {
  Case one;
  one.suite = "ceilings";
  one.size = size;
  one.recipe = recipe.name;
  one.what = recipe.what;
  one.trains = false;
  one.ranks = ranks;
  const auto kind = *ceiling_kind(recipe.name);
  one.communicates = is_collective(kind) || kind == CeilingKind::pairs;
  one.precision = recipe.precision;
  one.attention = one.loss_kernel = one.block_kernel = "none";
  one.steps = options.steps.value_or(size == "tiny" ? 5 : 50);
  one.warmup = options.warmup.value_or(size == "tiny" ? 2 : 10);
  one.seed = options.seed;
  one.work = static_cast<double>(one.steps + one.warmup);
  if (kind == CeilingKind::pairs && ranks < 2) one.skip = "one rank is no pair";
  if (recipe.gpu_only && !cuda) one.skip = "only a GPU has this ceiling, and this run is on a CPU";
  return one;
}

std::string size_text(CeilingKind kind, double size) {
  if (kind == CeilingKind::matmul) return fmt::format("{:.0f}", size);
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  for (; size >= 1024 && unit < 3; ++unit) size /= 1024;
  return fmt::format("{:g} {}", size, units[unit]);
}

/// TFLOP/s or GB/s (1e9 bytes).
std::string rate_text(CeilingKind kind, double rate) {
  return kind == CeilingKind::matmul ? fmt::format("{:.3f} TFLOP/s", rate * 1e-12)
                                     : fmt::format("{:.3f} GB/s", rate * 1e-9);
}

void describe(Session& session, const Case& work, CaseRecord& row) {
  row.settings = merged_settings(
      row.settings, {{"implementation", std::string("trainsuite")},
                     {"communicator", work.communicates ? session.comm_kind() : "none"},
                     {"dry_run", !session.device().cuda},
                     {"ranks_total", std::int64_t{session.world().size()}},
                     {"suite", work.suite},
                     {"device_name", session.device().name}});
  if (work.communicates) row.settings = merged_settings(row.settings, session.nccl_choices());
  if (row.status != "ok") return;
  const Series* steps = row.ranks.empty() ? nullptr : find_series(row.ranks[0], "step_seconds");
  row.warmup.clear();  // of each problem its own
  for (std::size_t i = 0; steps != nullptr && i < steps->values.size(); ++i) {
    const auto repetition = static_cast<std::int64_t>(i) % (work.warmup + work.steps);
    row.warmup.push_back(repetition < work.warmup ? 1 : 0);
  }
  const auto total = static_cast<std::int64_t>(row.warmup.size());
  const auto warmup = std::count(row.warmup.begin(), row.warmup.end(), std::uint8_t{1});
  row.settings = merged_settings(row.settings, {{"repetitions", work.steps},
                                                {"warmup_repetitions", work.warmup},
                                                {"steps", total - warmup},
                                                {"warmup", std::int64_t{warmup}}});
  double wrong = 0;
  for (const auto& point : ceiling_points(row)) wrong += point.wrong_values;
  for (const auto& pair : pair_points(row)) wrong += pair.wrong_values;
  row.checks.push_back({"results_correct", wrong == 0});
  const auto best = best_point(row);
  if (!best) return;
  const bool flops = *ceiling_kind(work.recipe) == CeilingKind::matmul;
  row.results.push_back(
      {flops ? "ceiling_flops_per_second" : "ceiling_bytes_per_second", best->rate});
  row.results.push_back({"ceiling_problem_size", best->size});
  if (best->bus_rate) row.results.push_back({"ceiling_bus_bytes_per_second", *best->bus_rate});
  if (wrong > 0) {
    row.status = "failed";
    row.reason =
        fmt::format("{:.0f} results were wrong: rates of wrong results mean nothing", wrong);
  }
}

void add_lines(const CaseRecord& record, CeilingKind kind,
               std::vector<std::vector<std::string>>& rows) {
  const auto best = best_point(record);
  for (const CeilingPoint& point : ceiling_points(record)) {
    const std::string bus = !is_collective(kind) ? "-"
                            : point.bus_rate     ? rate_text(kind, *point.bus_rate)
                                                 : "not defined for one rank";
    const std::string name =
        record.repeat == 0 ? record.name : fmt::format("{} #{}", record.name, record.repeat);
    rows.push_back({name, point.size == best->size ? "best" : "", size_text(kind, point.size),
                    fmt::format("{:.4f}", point.seconds * 1e3), rate_text(kind, point.rate), bus,
                    fmt::format("{:.0f}", point.wrong_values)});
  }
}

}  // namespace

std::vector<Case> ceilings_cases(const Options& options, bool cuda, int ranks) {
  std::vector<Case> cases;
  for (const char* size : {"full", "tiny"}) {
    for (const Recipe& recipe : recipes) {
      cases.push_back(make_case(size, recipe, options, cuda, ranks));
    }
    if (options.pairs) cases.push_back(make_case(size, pairs_recipe, options, cuda, ranks));
  }
  return cases;
}

std::vector<std::string> ceilings_default_sizes(const Options&, bool cuda) {
  return {cuda ? "full" : "tiny"};
}

std::vector<std::int64_t> problem_sizes(const Case& work) {
  constexpr std::int64_t mebibyte = 1 << 20;
  const bool tiny = work.size == "tiny";
  switch (*ceiling_kind(work.recipe)) {
    case CeilingKind::matmul:
      if (tiny) return {64, 128};
      if (work.precision == "fp32") return {2048, 4096, 8192};
      return {2048, 4096, 8192, 16384};
    case CeilingKind::device_copy:
      if (tiny) return {mebibyte, 4 * mebibyte};
      return {64 * mebibyte, 256 * mebibyte, 1024 * mebibyte, 4096 * mebibyte};
    case CeilingKind::host_copy:
      if (tiny) return {mebibyte};
      return {mebibyte, 16 * mebibyte, 256 * mebibyte, 1024 * mebibyte};
    default:
      break;
  }
  std::vector<std::int64_t> bytes;
  const std::int64_t least = std::int64_t{16} * work.ranks, most = (tiny ? 1 : 1024) * mebibyte;
  for (std::int64_t size = tiny ? 4096 : 1024; size <= most; size *= tiny ? 16 : 4) {
    bytes.push_back(std::max(least, size / least * least));
  }
  return bytes;
}

std::string ceilings_table(const std::vector<CaseRecord>& records) {
  std::vector<std::vector<std::string>> rows = {
      {"case", "", "size", "ms", "rate", "bus bandwidth", "wrong"}};
  std::string reasons;
  for (const CaseRecord& record : records) {
    const auto recipe = record.name.substr(record.name.find('-') + 1);
    if (const auto kind = ceiling_kind(recipe)) add_lines(record, *kind, rows);
    for (const PairPoint& pair : pair_points(record)) {
      rows.push_back({record.name, fmt::format("{}-{}", pair.a, pair.b),
                      size_text(CeilingKind::pairs, pair.size),
                      fmt::format("{:.4f}", pair.seconds * 1e3),
                      rate_text(CeilingKind::pairs, pair.rate), "-",
                      fmt::format("{:.0f}", pair.wrong_values)});
    }
    if (record.status != "ok") {
      reasons += fmt::format("{}: {}: {}\n", record.name, record.status, record.reason);
    }
  }
  return "\n" + aligned_table(rows, 2) + reasons +
         "Median of the repetitions at the slowest rank; GB/s of 1e9 bytes, all ranks at once, the "
         "rate of one. Matrix products: 2 n^3. Copies within a device: bytes read and written. "
         "Collectives: rate = size / time; bus bandwidth = rate x 2 (n - 1) / n for all-reduce, "
         "x (n - 1) / n for the others, as nccl-tests has them. Pairs: bytes in each direction.\n";
}

Suite ceilings_suite() {
  Suite suite{"ceilings", ceilings_cases, ceilings_default_sizes,
              [](Session& session, const Options&) {
                Workload workload;
                workload.run = [&session](const Case& work) {
                  auto* communicator = work.communicates ? &session.communicator() : nullptr;
                  return run_ceiling(work, session.device(), session.world(), communicator);
                };
                workload.recover = [&session] { return session.recover(); };
                workload.describe = [&session](const Case& work, CaseRecord& row) {
                  describe(session, work, row);
                };
                return workload;
              }};
  suite.table = ceilings_table;
  return suite;
}

}  // namespace trainsuite
