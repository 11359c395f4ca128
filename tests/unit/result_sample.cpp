// Writes result files for tests/analysis, which hold the same records in Python.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "result/result_file.h"

namespace {

using namespace trainsuite;

Series ramp(const std::string& name, const std::string& unit, int rank, int steps, double factor) {
  Series series{name, unit, {}};
  for (int step = 0; step < steps; ++step)
    series.values.push_back(factor * (1000 * rank + step + 1));
  return series;
}

RunRecord awkward_run() {
  RunRecord run;
  run.created_utc = "2026-01-02T03:04:05Z";
  run.argv = {"trainsuite", "ddp", "--out", "naïve Ω 😀.h5", ""};
  run.planned = {"tiny-plain", "tiny-größe", "tiny-missing"};
  run.attributes = {{"torch_version", std::string("2.11.0+cu130")},
                    {"dry_run", true},
                    {"mpi_ranks", std::int64_t{3}},
                    {"clock_ghz", 2.5},
                    {"empty", std::string()}};
  run.ranks = {{0, 0, "höst", "GPU A", "GPU-1", "0000:01:00.0", 1LL << 37, "0-7"},
               {1, 1, "höst", "", "", "", 0, ""},
               {2, 0, "other", "GPU B", "GPU-2", "0000:02:00.0", 5, "8,9"}};
  run.hosts = {{"höst", "CPU", "6.1", "none", 2, 64, 1LL << 40}, {"other", "", "", "", 0, 0, 0}};
  GpuIdentity told;
  told.host = "höst";
  told.uuid = "GPU-1";
  told.device_name = "GPU A";
  told.pci_bus_id = "0000:01:00.0";
  told.power_limit_watts = 700;
  told.power_limit_default_watts = 650;
  told.ecc = "on";
  told.mig = told.persistence = "off";
  told.compute_mode = "default";
  told.pcie_generation = 1;
  told.pcie_generation_max = 5;
  told.pcie_width = told.pcie_width_max = 16;
  told.numa_node = 1;
  GpuIdentity silent;
  silent.host = "other";
  silent.gpu = 3;
  run.gpus = {told, silent};
  run.topology = {{"höst", 0, 1, "NV18"}};
  run.networks = {{"höst", "mlx5_0:1", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)", 0},
                  {"other", "eth0", "Ethernet", "up", "", std::nan("")}};
  return run;
}

CaseRecord plain_case(std::int64_t repeat) {
  CaseRecord record{"ddp", "tiny-plain", repeat, "ok", "", {}, {}, {}, {1, 0, 0, 0}, {}};
  record.settings = {{"implementation", std::string("trainsuite")},
                     {"steps", std::int64_t{9}},
                     {"steps", std::int64_t{3}},
                     {"oversubscribe", false},
                     {"learning_rate", 1e-4},
                     {"unknown", std::nan("")},
                     {"interface", std::string()},
                     {"negative", std::int64_t{-9223372036854775807LL}},
                     {"ranks", std::int64_t{99}}};
  for (int index = 0; index < 150; ++index)
    record.settings.push_back({"many_" + std::to_string(index), std::int64_t{index}});
  record.results = {{"setup_seconds", 0.25},
                    {"weight_bytes_float32", std::int64_t{1} << 40},
                    {"long_text", std::string(100'000, 'x')},
                    {"final_weights_hash", std::string("ab12")}};
  record.checks = {{"replicas_equal", true}, {"difference", 0.5}, {"note", std::string("ø")}};
  RankRecord first{0, {ramp("step_seconds", "s", 0, 4, 0.125), ramp("loss", "1", 0, 4, 1)}, {}};
  first.series.push_back(ramp("tokens", "token", 0, 4, 1));
  first.series.push_back(ramp("allocated_peak_bytes", "byte", 0, 4, 1e9));
  first.series.push_back(ramp("odd_bytes", "byte", 0, 4, 0.5));
  first.series.push_back({"nothing", "s", {}});
  first.facts = {{"setup_seconds", 1.5},
                 {"hash", std::string("é")},
                 {"flag", true},
                 {"optimizer_bytes", std::int64_t{8}},
                 {"loop_steps", std::int64_t{3}}};
  RankRecord second{
      2, {ramp("step_seconds", "s", 2, 2, 0.125), ramp("tokens", "token", 2, 4, 1)}, {}};
  second.series.push_back(ramp("allocated_peak_bytes", "byte", 2, 3, 1e9));
  second.series.push_back(ramp("only_here_seconds", "s", 2, 4, 1));
  second.facts = {{"setup_seconds", 2.5}, {"flag", false}, {"optimizer_bytes", std::int64_t{9}}};
  second.telemetry = {ramp("sample_seconds", "s", 2, 3, 0.25), ramp("power_watts", "W", 2, 2, 1)};
  record.ranks = {first, second};
  return record;
}

CaseRecord failed_case() {
  CaseRecord record;
  record.suite = "ddp";
  record.name = "tiny-größe";
  record.status = "oom";
  record.reason = "rank 1: out of memory\n(second line)";
  record.settings = {{"implementation", std::string("trainsuite")}, {"ranks", std::int64_t{9}}};
  return record;
}

void write_awkward(const std::string& path, std::size_t small_file_bytes) {
  auto file = ResultFile::create(path, awkward_run(), small_file_bytes);
  for (int repeat = 0; repeat < 3; ++repeat) file->append(plain_case(repeat));
  file->append(failed_case());
  file->finish();
}

CaseRecord stream_case(std::int64_t number, int steps) {
  CaseRecord record;
  record.suite = "ddp";
  record.name = "tiny-stream";
  record.repeat = number;
  record.status = "ok";
  record.ranks = {{0, {ramp("loss", "1", static_cast<int>(number), steps, 1)}, {}}};
  return record;
}

/// Appends rows and says on standard output which ones it was told are safe.
void write_stream(const std::string& path, std::size_t small_file_bytes, int rows, int steps) {
  RunRecord run;
  run.created_utc = "2026-01-02T03:04:05Z";
  run.planned = {"tiny-stream"};
  auto file = ResultFile::create(path, run, small_file_bytes);
  std::puts("created");
  std::fflush(stdout);
  for (int number = 0; number < rows; ++number) {
    file->append(stream_case(number, steps));
    std::printf("%d\n", number);
    std::fflush(stdout);
  }
  file->finish();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 3 ? argv[1] : "";
  try {
    if (mode == "awkward" && argc == 4) {
      write_awkward(argv[2], std::stoul(argv[3]));
    } else if (mode == "stream" && argc == 6) {
      write_stream(argv[2], std::stoul(argv[3]), std::atoi(argv[4]), std::atoi(argv[5]));
    } else {
      std::fputs("result_sample awkward PATH SMALL | stream PATH SMALL ROWS STEPS\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
