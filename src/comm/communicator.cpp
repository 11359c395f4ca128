#include "comm/communicator.h"

#include <fmt/ranges.h>
#include <net/if.h>

#include <cstdlib>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

struct Variable {
  const char* name;
  std::string value;
};

std::vector<Variable> link_variables(const std::string& link) {
  if (link == "auto") return {};
  if (link == "shm") return {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "0"}};
  if (link == "socket") {
    return {{"NCCL_P2P_DISABLE", "1"},
            {"NCCL_SHM_DISABLE", "1"},
            {"NCCL_IB_DISABLE", "1"},
            {"NCCL_NET", "Socket"}};
  }
  fail<UsageError>("--link {}: unknown; known are auto, shm, socket", link);
}

std::vector<std::string> interfaces_of_this_host() {
  std::vector<std::string> names;
  struct if_nameindex* all = if_nameindex();
  for (auto* i = all; i != nullptr && i->if_index != 0; ++i) names.emplace_back(i->if_name);
  if (all != nullptr) if_freenameindex(all);
  return names;
}

// "=" asks NCCL for the exact name, not for all that start with it.
Variable interface_variable(const std::string& name) {
  if (if_nametoindex(name.c_str()) == 0) {
    fail<UsageError>("--interface {}: this host has no such network interface; it has {}", name,
                     join(interfaces_of_this_host(), ", "));
  }
  return {"NCCL_SOCKET_IFNAME", "=" + name};
}

std::optional<std::string> set_variable(const Variable& variable, const std::string& flag) {
  const char* before = std::getenv(variable.name);
  std::optional<std::string> note;
  if (before != nullptr && variable.value != before) {
    note = fmt::format("{} sets {}={} instead of {} from the environment", flag, variable.name,
                       variable.value, before);
  }
  setenv(variable.name, variable.value.c_str(), 1);
  return note;
}

}  // namespace

std::vector<std::string> apply_link(const CommunicatorOptions& options) {
  std::vector<std::string> notes;
  const auto set = [&](const Variable& variable, const std::string& flag) {
    if (auto note = set_variable(variable, flag)) notes.push_back(*note);
  };
  for (const Variable& variable : link_variables(options.link)) {
    set(variable, "--link " + options.link);
  }
  if (!options.interface.empty()) {
    set(interface_variable(options.interface), "--interface " + options.interface);
  }
  return notes;
}

void check_tensor(const at::Tensor& tensor, const char* call) {
  const auto type = tensor.scalar_type();
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kLong) {
    fail("{}: dtype {} is not supported; float, bfloat16 and int64 are", call, at::toString(type));
  }
  if (!tensor.is_contiguous()) fail("{}: the tensor is not contiguous", call);
}

void check_gathered(const at::Tensor& mine, const at::Tensor& gathered, int size,
                    const char* call) {
  check_tensor(mine, call);
  check_tensor(gathered, call);
  std::vector<std::int64_t> expected = mine.sizes().vec();
  expected.insert(expected.begin(), size);
  if (gathered.sizes() != at::IntArrayRef(expected) ||
      gathered.scalar_type() != mine.scalar_type() || gathered.device() != mine.device()) {
    fail("{}: the result must have shape [{}] and the dtype and device of the input", call,
         fmt::join(expected, ", "));
  }
}

std::unique_ptr<Communicator> make_communicator(const std::string& kind, World& world,
                                                const CommunicatorOptions& options) {
  if (kind == "nccl") return make_nccl_communicator(world, options);
  if (kind == "mpi") return make_mpi_communicator(world, options);
  fail<UsageError>("--comm {}: unknown; known are nccl and mpi", kind);
}

}  // namespace trainsuite
