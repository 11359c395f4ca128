// trainsuite <suite> [options]: the list of suites, and the way from argv to a result file.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cli/options.h"
#include "compiling.h"
#include "core/fault.h"
#include "core/text.h"
#include "ddp.h"
#include "launch/launched.h"
#include "launch/stop_signal.h"
#include "launch/watchdog.h"
#include "result/result_file.h"
#include "result/statistics.h"
#include "run/agreement.h"
#include "run/plan.h"
#include "run/runner.h"
#include "run/self_check.h"
#include "run/summary.h"
#include "session.h"
#include "suite.h"
#include "versions.h"
#include "weights/saved_model.h"

namespace trainsuite {
namespace {

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all{ddp_suite(), finetune_suite(), compile_suite(),
                                      ceilings_suite()};
  return all;
}

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const auto& suite : suites()) names.push_back(suite.name);
  return names;
}

const Suite& find_suite(const std::string& name) {
  for (const auto& suite : suites()) {
    if (suite.name == name) return suite;
  }
  fail<UsageError>("unknown suite '{}'", name);
}

int report(const std::string& message, int code, bool speak) {
  if (speak) std::cerr << fmt::format("trainsuite: {}\n", message) << std::flush;  // one write
  return code;
}

std::vector<Case> selected_cases(const Suite& suite, const Options& options, bool cuda, int ranks) {
  return select_cases(suite.cases(options, cuda, ranks), options,
                      suite.default_sizes(options, cuda));
}

/// --help, --version, --list: answered without MPI. Empty: there is work to do.
std::optional<int> answer_alone(const Options& options) {
  if (options.help) {
    std::cout << help_text(suite_names());
  } else if (options.version) {
    std::cout << version_line() << std::endl;
  } else if (options.list) {
    const auto& suite = find_suite(options.suite);
    print_list(std::cout, suite.cases(options, choose(options).cuda, launched_size(std::getenv)),
               options);
  } else {
    return std::nullopt;
  }
  return 0;
}

/// "bf16, attention=cudnn loss=fused block=fused", each combination once.
std::string chosen_kernels(const std::vector<Case>& cases) {
  std::vector<std::string> all;
  for (const auto& one : cases) {
    if (!one.trains) continue;
    auto text = fmt::format("{}, attention={} loss={} block={}", one.precision, one.attention,
                            one.loss_kernel, one.block_kernel);
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
  }
  return join(all, "; ");
}

void show_plan(Session& session, const Options& options, const std::vector<Case>& cases,
               std::optional<std::int64_t> free_bytes, const std::string& path) {
  print_plan(std::cout, cases,
             {.cuda = session.device().cuda,
              .device_name = session.device().name,
              .ranks = session.world().size(),
              .hosts = static_cast<int>(session.run_record().hosts.size()),
              .repeats = order_options(options).repeats,
              .until_percent = options.until_percent,
              .communicator = session.comm_kind(),
              .link = options.link,
              .free_bytes = free_bytes,
              .default_sizes = options.sizes.empty(),
              .output_path = path});
  if (const auto kernels = chosen_kernels(cases); !kernels.empty()) {
    std::cout << "Kernels: " << kernels << "\n";
  }
  for (const auto& note : session.notes()) std::cout << "Note: " << note << "\n";
  std::cout << std::endl;
}

/// On rank 0 what --resume goes on with; empty elsewhere, and where there is no such file yet.
std::optional<EarlierFile> read_earlier_file(World& world, const Options& options) {
  std::optional<EarlierFile> earlier;
  all_or_none(world, [&] {
    if (!world.is_root() || !options.resume || !std::filesystem::exists(options.out)) return;
    earlier = read_earlier(options.out);
  });
  return earlier;
}

/// On rank 0 the file that the rows will go to; null elsewhere.
std::unique_ptr<ResultFile> open_file(World& world, Session& session, const Options& options,
                                      const std::vector<Case>& cases,
                                      const std::optional<EarlierFile>& earlier) {
  std::unique_ptr<ResultFile> file;
  all_or_none(world, [&] {
    if (!world.is_root()) return;
    auto& run = session.run_record();
    for (const auto& one : cases) run.planned.push_back(one.name());
    if (earlier) {
      check_resumable(*earlier, run, cases, recorded_settings(options));
      file = ResultFile::resume(options.out, run);
      return;
    }
    file = options.out.empty() ? ResultFile::create_default(options.suite, run)
                               : ResultFile::create(options.out, run);
  });
  return file;
}

/// What steps take, what of it fits and how long it may last; the cases of a self-check doubled.
void add_expectations(Session& session, const Suite& suite, const Options& options,
                      std::vector<Case>& cases) {
  all_or_none(session.world(), [&] {
    if (session.world().is_root() && !options.ceilings.empty()) {
      session.load_ceilings(options.ceilings);
    }
  });
  for (auto& one : cases) {
    if (!suite.account) continue;
    one.account = suite.account(one);
    if (session.device().cuda) one.predicted_bytes = one.account->peak_bytes();
    if (const auto peak = session.peak_flops(one.precision)) {
      one.expected_seconds =
          expected_seconds(*one.account, one.warmup + one.steps, one.ranks, peak->flops);
    }
  }
  if (options.self_check) cases = self_check_cases(cases);
}

void print_rows(const Suite& suite, const Options& options, const std::vector<CaseRecord>& rows,
                const SummaryFacts& facts) {
  if (options.json) {
    std::cout << summary_json(rows, facts);
  } else if (suite.table) {
    std::cout << suite.table(rows) << "Output: " << facts.output_path << "\n";
  } else {
    std::cout << summary_text(rows, facts);
    if (options.self_check) std::cout << self_check_text(rows);
  }
  std::cout << std::flush;
}

/// The flags, and the fault that was asked for.
Settings row_settings(const Options& options) {
  auto settings = recorded_settings(options);
  if (const auto fault = fault_of_environment()) settings.push_back({"fault", to_text(*fault)});
  return settings;
}

std::string how_to_go_on(const std::string& path) {
  return fmt::format("what is finished is in {0}; --out {0} --resume runs the rest", path);
}

WatchdogOptions watchdog_options(const Options& options,
                                 std::chrono::steady_clock::time_point begin) {
  WatchdogOptions watchdog;
  watchdog.leave_seconds = std::clamp(options.time_limit_seconds, 5.0, watchdog.leave_seconds);
  watchdog.signal = stop_signal;
  if (!options.total_time_limit_seconds) return watchdog;
  watchdog.time_over = [begin, limit = *options.total_time_limit_seconds] {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (taken.count() < limit) return std::optional<Stop>();
    return std::optional<Stop>({1, fmt::format("--total-time-limit {:.6g} s", limit), true});
  };
  return watchdog;
}

int run_suite(World& world, const Options& options, const std::vector<std::string>& argv) {
  const auto begin = std::chrono::steady_clock::now();
  const auto& suite = find_suite(options.suite);
  world.set_deadline(options.time_limit_seconds + 60);  // of waits outside cases
  all_or_none(world, [&] {                              // before anything that takes time
    if (!world.is_root() || options.plan) return;
    const bool goes_on = options.resume && std::filesystem::exists(options.out);
    if (!options.out.empty() && !goes_on) ResultFile::check_creatable(options.out);
    if (!options.save.empty()) check_saveable(options.save);
  });
  Session session(world, options, argv);
  auto cases = selected_cases(suite, options, session.device().cuda, world.size());
  session.check_same_cases(cases);
  const auto earlier = read_earlier_file(world, options);
  session.resolve_kernels(cases, earlier ? &*earlier : nullptr);
  skip_graph_rows(cases, session.device().cuda, session.comm_kind());
  if (!options.plan) check_compiling(session, options, cases);
  add_expectations(session, suite, options, cases);
  const auto free_bytes = session.least_free_bytes();
  if (options.plan) {
    if (world.is_root()) show_plan(session, options, cases, free_bytes, "");
    return 0;
  }
  const auto file = open_file(world, session, options, cases, earlier);
  const auto done = earlier_cases_from_text(world.broadcast(
      to_text(earlier ? earlier_cases(*earlier, suite.name, options.retry) : EarlierCases())));
  if (world.is_root() && !options.json)
    show_plan(session, options, cases, free_bytes, file->path());
  note_stop_signals();  // before this point a signal ends the process: nothing is measured yet
  const auto show = [&](const std::vector<CaseRecord>& rows) {
    print_rows(suite, options, rows,
               {session.device().cuda, session.run_record().ranks, file->path()});
  };
  const auto result = run_plan(world, cases, suite.workload(session, options),
                               {.order = order_options(options),
                                .settings = row_settings(options),
                                .case_seconds = options.time_limit_seconds,
                                .interrupted = show,
                                .quiet = options.json,
                                .watchdog = watchdog_options(options, begin),
                                .earlier = done,
                                .how_to_go_on = file ? how_to_go_on(file->path()) : ""},
                               file.get());
  if (!world.is_root()) return std::stoi(world.broadcast({}));
  file->finish();
  show(result.rows);
  int code = exit_status(result.rows);
  if (result.stop) {
    code = report(fmt::format("stopped by {}; {}", result.stop->reason, how_to_go_on(file->path())),
                  result.stop->exit_code, true);
  }
  if (!std::cout) {
    code = report(
        fmt::format("standard output is closed or full; the results are in {}", file->path()), 1,
        true);
  }
  return std::stoi(world.broadcast(std::to_string(code)));
}

int run_with_mpi(const Options& options, int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  World world(&argc, &argv);
  try {
    return run_suite(world, options, words);
  } catch (const UsageError& error) {  // the same on all ranks
    return report(error.what(), 2, world.is_root());
  } catch (const SharedError& error) {
    return report(error.what(), 1, world.is_root());
  } catch (const std::exception& error) {
    world.abort(1, error.what());
  }
}

int run_main(int argc, char** argv) {
  const int rank = launched_rank(std::getenv);
  try {
    const auto options = parse_options(argc, argv, suite_names());
    if (rank != 0 && (options.help || options.version || options.list)) return 0;
    if (const auto code = answer_alone(options)) return *code;
    if (const auto mistake = launch_mistake(std::getenv)) return report(*mistake, 2, rank == 0);
    selected_cases(find_suite(options.suite), options, choose(options).cuda,
                   launched_size(std::getenv));
    if (!options.interface.empty()) {
      if (const auto note = use_interface(options.interface)) report(*note, 0, rank == 0);
    }
    return run_with_mpi(options, argc, argv);
  } catch (const UsageError& error) {
    // The launcher kills the job at the first bad exit: let rank 0 speak before. Where it has no
    // reason to, this rank's words are the only ones.
    if (rank == 0) return report(error.what(), 2, true);
    sleep(3);
    return report(fmt::format("rank {}: {}", rank, error.what()), 2, true);
  } catch (const std::exception& error) {
    return report(error.what(), 1, true);
  }
}

}  // namespace
}  // namespace trainsuite

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the summary may leave early; the run goes on
  return trainsuite::run_main(argc, argv);
}
