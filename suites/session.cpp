#include "session.h"

#include <ATen/Context.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/fault.h"
#include "launch/same_everywhere.h"
#include "machine.h"
#include "model/attention.h"
#include "run/agreement.h"
#include "run/plan.h"
#include "run/run_facts.h"
#include "train/trained_model.h"
#include "versions.h"

namespace trainsuite {
namespace {

constexpr double device_patience_seconds = 10;  // to finish what is queued after a failure

/// Rank 0's first word of each host; hosts in order of their first rank.
std::vector<HostIdentity> unique_hosts(const std::vector<std::string>& texts) {
  std::vector<HostIdentity> hosts;
  for (const auto& text : texts) {
    auto host = host_from_text(text);
    const bool known = std::any_of(hosts.begin(), hosts.end(),
                                   [&](const auto& other) { return other.host == host.host; });
    if (!known) hosts.push_back(std::move(host));
  }
  return hosts;
}

/// What must be equal on all ranks: how they were told to run and what they were built from.
Settings fingerprint(const Options& options, const Choice& choice) {
  auto settings = recorded_settings(options);
  for (auto& version : versions(choice.cuda)) settings.push_back(std::move(version));
  settings.push_back({"suite", options.suite});
  settings.push_back({"device", std::string(choice.cuda ? "cuda" : "cpu")});
  settings.push_back({"communicator", choice.comm});
  settings.push_back({"--plan", options.plan});
  settings.push_back({"--json", options.json});
  const auto fault = fault_of_environment();
  settings.push_back({"TRAINSUITE_FAULT", fault ? to_text(*fault) : std::string("none")});
  return settings;
}

/// Cases of one key share their attention's shape.
std::string kernel_key(const Case& one) {
  return fmt::format("{}/{}/{}/{}", one.size, one.micro_batch, one.sequence, one.precision);
}

/// The attention kernels that rows of earlier runs were measured with.
std::map<std::string, std::string> kernels_of(const EarlierFile& file) {
  std::map<std::string, std::string> kernels;
  for (const auto& row : file.rows) {
    const auto* micro_batch = find_value(row.attributes, "micro_batch");
    const auto* sequence = find_value(row.attributes, "sequence");
    const auto attention = text_of(row.attributes, "attention");
    if (!micro_batch || !sequence || attention.empty()) continue;
    Case one;
    one.size = text_of(row.attributes, "size");
    one.precision = text_of(row.attributes, "precision");
    one.micro_batch = std::get<std::int64_t>(*micro_batch);
    one.sequence = std::get<std::int64_t>(*sequence);
    kernels[kernel_key(one)] = attention;
  }
  return kernels;
}

/// Kernels that give the same bits each time; those that cannot throw. Before the first CUDA call.
void require_determinism(const std::string& attention) {
  if (attention == "cudnn" || attention == "efficient") {
    fail<UsageError>(
        "--deterministic: --attention {} may sum in any order; use auto, flash or math", attention);
  }
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // as cuBLAS's documentation asks
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
}

}  // namespace

Choice choose(const Options& options) {
  Choice choice;
  // Local rank 0 of 1: whether there is a GPU at all; which one is the session's business.
  choice.cuda = choose_device(options.device, 0, 1, options.oversubscribe).cuda;
  choice.comm = options.comm;
  if (choice.comm == "auto") {
    choice.comm = choice.cuda && !options.oversubscribe ? "nccl" : "mpi";
  }
  check_consistency(options, choice.cuda, choice.comm);
  return choice;
}

Session::Session(World& world, const Options& options, const std::vector<std::string>& argv)
    : world_(world), options_(options) {
  all_or_none(world, [&] {
    comm_kind_ = choose(options).comm;
    if (options.deterministic) require_determinism(options.attention);
    device_ = choose_device(options.device, world.local_rank(), world.local_size(),
                            options.oversubscribe);
    activate_device(device_, options.memory_limit_gib);
    affinity_ = apply_affinity(device_, world.local_rank(), world.local_size());
    notes_ = apply_link({.link = options.link, .interface = options.interface});
    if (const auto fault = fault_of_environment()) {
      notes_.push_back("TRAINSUITE_FAULT makes a fault on purpose: " + to_text(*fault));
    }
  });
  check_same_everywhere(world, fingerprint(options, {device_.cuda, comm_kind_}));
  identify(argv);
}

void Session::identify(const std::vector<std::string>& argv) {
  const RankIdentity mine{
      world_.rank(), world_.local_rank(), world_.host(),        device_.name,
      device_.uuid,  device_.pci_bus_id,  device_.memory_bytes, core_ranges(affinity_.cores)};
  std::vector<std::pair<std::string, std::string>> gpus;
  for (const auto& text : world_.all_gather(rank_to_text(mine))) {
    run_.ranks.push_back(rank_from_text(text));
    if (device_.cuda) gpus.emplace_back(run_.ranks.back().host, run_.ranks.back().uuid);
  }
  check_unique_gpus(gpus, options_.oversubscribe);
  run_.hosts = unique_hosts(world_.all_gather(host_to_text(this_host(world_.host()))));
  run_.created_utc = utc_now();
  run_.argv = argv;
  run_.attributes = versions(device_.cuda);
  run_.attributes.push_back({"dry_run", !device_.cuda});
  run_.attributes.push_back({"implementation", std::string("trainsuite")});
  run_.attributes.push_back({"ranks_total", std::int64_t{world_.size()}});
  run_.attributes.push_back({"affinity", affinity_.source});
  run_.attributes.push_back({"torch_threads", std::int64_t{affinity_.torch_threads}});
  auto machine = inspect_machine(world_, device_, run_);
  notes_.insert(notes_.end(), machine.notes.begin(), machine.notes.end());
  if (options_.telemetry == "on") {
    telemetry_ = std::make_unique<Telemetry>(std::move(machine.telemetry));
  }
  for (auto& setting : recorded_environment()) run_.attributes.push_back(std::move(setting));
}

void Session::load_ceilings(const std::string& path) {
  ceilings_ = read_ceilings(path);
  std::erase_if(ceilings_, [&](const auto& one) { return one.device_name != device_.name; });
  if (!ceilings_.empty()) return;
  fail<UsageError>(
      "--ceilings {}: it holds no matrix products of {}; make it with `trainsuite ceilings --out "
      "{}`"
      " on this machine",
      path, device_.name, path);
}

std::optional<Session::Peak> Session::peak_flops(const std::string& precision) const {
  if (const auto measured = product_ceiling(ceilings_, device_.name, precision)) {
    return Peak{*measured, "measured"};
  }
  const auto gpu = device_.cuda ? find_gpu(device_.name) : std::nullopt;
  if (!gpu || precision != "bf16") return std::nullopt;
  return Peak{gpu->dense_bf16_tflops * 1e12, "listed"};
}

std::optional<std::int64_t> Session::least_free_bytes() {
  if (!device_.cuda) return std::nullopt;
  std::int64_t least = device_.memory_bytes;
  for (const auto& text : world_.all_gather(std::to_string(free_memory_bytes(device_)))) {
    least = std::min(least, std::int64_t{std::stoll(text)});
  }
  return least;
}

void Session::check_same_cases(const std::vector<Case>& cases) {
  Settings settings{{"number of cases", static_cast<std::int64_t>(cases.size())}};
  for (size_t i = 0; i < cases.size(); ++i) {
    settings.push_back({fmt::format("case {}", i + 1), cases[i].name()});
    for (auto& setting : case_settings(cases[i])) {
      settings.push_back({cases[i].name() + " " + setting.name, setting.value});
    }
  }
  check_same_everywhere(world_, settings);
}

Settings Session::nccl_choices() const {
  return nccl_log_ ? nccl_settings(nccl_log_->read()) : Settings{};
}

Communicator& Session::communicator() {
  if (!nccl_log_ && comm_kind_ == "nccl" && world_.is_root()) {
    nccl_log_ = std::make_unique<NcclLog>();
  }
  if (!communicator_) {
    communicator_ = make_communicator(comm_kind_, world_,
                                      {.link = options_.link, .interface = options_.interface});
  }
  return *communicator_;
}

std::string Session::recover() {
  if (communicator_) communicator_->abort();
  communicator_.reset();
  return device_fault(device_, device_patience_seconds);
}

void Session::resolve_kernels(std::vector<Case>& cases, const EarlierFile* earlier) {
  auto fastest = earlier ? kernels_of(*earlier) : std::map<std::string, std::string>();  // by shape
  std::string packed;
  all_or_none(world_, [&] {
    if (!world_.is_root()) return;
    for (const auto& one : cases) {
      if (one.attention != "auto") continue;
      if (fastest.contains(kernel_key(one))) continue;
      if (options_.deterministic && device_.cuda) {
        fastest[kernel_key(one)] = "flash";
        continue;
      }
      const auto heads = attention_heads(one);
      const auto key = kernel_key(one);
      const auto dtype = one.precision == "bf16" ? at::kBFloat16 : at::kFloat;
      fastest[key] = fastest_attention(device_.torch_device(), dtype, one.micro_batch, heads.count,
                                       heads.key_value, one.sequence, heads.width);
    }
    packed = nlohmann::json(fastest).dump();
  });
  fastest = nlohmann::json::parse(world_.broadcast(packed));
  for (auto& one : cases) {
    if (one.attention == "auto") one.attention = fastest.at(kernel_key(one));
    if (one.loss_kernel == "auto") one.loss_kernel = device_.cuda ? "fused" : "reference";
    if (one.block_kernel == "auto") one.block_kernel = device_.cuda ? "fused" : "reference";
  }
}

}  // namespace trainsuite
