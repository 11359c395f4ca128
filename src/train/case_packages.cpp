#include "train/case_packages.h"

#include <chrono>

#include "core/error.h"

namespace trainsuite {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr const char* part_names[] = {"import", "trace", "inductor", "kernels", "wrapper"};

}  // namespace

CasePackages::CasePackages(const Case& work, const DeviceInfo& device, World& world,
                           CompileChoice choice)
    : work_(work), device_(device), world_(world), choice_(std::move(choice)) {
  logs_ = choice_.cache / "logs";  // they outlast a cold case
  if (!choice_.cold) return;
  std::string name = unique_name("cold");
  if (!work_.one_rank) name = world_.broadcast(name);
  if (work_.one_rank || world_.local_rank() == 0) cold_.emplace(choice_.cache, name);
  choice_.cache /= name;
}

bool CasePackages::load() {
  const auto start = Clock::now();
  parts_.reset();
  const PackageCache cache(choice_.cache, find_compile_tools(), logs_);
  const auto target = compile_target(work_, device_, choice_.deterministic);
  report_.compiled = false;
  bool stopped = false;
  try {
    if (work_.one_rank || world_.local_rank() == 0) compile(cache, target);
  } catch (const Stopped&) {
    stopped = true;
  }
  if (any_rank(stopped)) fail<Stopped>("stopped while packages were compiled");
  const bool any = any_rank(report_.compiled);
  const auto load_start = Clock::now();
  parts_.emplace(work_, cache, target, device_.torch_device());
  load_seconds_ += since(load_start);
  seconds_ += since(start);
  return any;
}

bool CasePackages::any_rank(bool mine) const {
  return work_.one_rank ? mine : !world_.agree(!mine);
}

void CasePackages::compile(const PackageCache& cache, const CompileTarget& target) {
  const auto watch = [&] {
    world_.check_time();
    if (!work_.one_rank) world_.check_peers();
    if (world_.stop_gate().frozen()) fail<Stopped>("asked to stop");
  };
  auto report = cache.ensure(target, block_requests(work_), watch);
  report_.compiled = report.compiled || report.waited;
  for (const auto& [part, seconds] : report.seconds) report_.seconds[part] += seconds;
  for (auto& note : report.notes) report_.notes.push_back(std::move(note));
}

Settings CasePackages::facts() const {
  Settings facts{{"compile_seconds", seconds_}, {"compile_load_seconds", load_seconds_}};
  for (const char* part : part_names) {
    const auto at = report_.seconds.find(part);
    facts.push_back(
        {fmt::format("compile_{}_seconds", part), at == report_.seconds.end() ? 0.0 : at->second});
  }
  for (const auto& note : report_.notes) facts.push_back({"compile_note", note});
  return facts;
}

}  // namespace trainsuite
