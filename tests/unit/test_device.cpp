// Device choice, the GPU table, and who gets which cores.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "core/error.h"
#include "device/cores.h"
#include "device/device.h"

namespace {

using namespace trainsuite;

template <class Work>
std::string usage_error(Work work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs `work` in a child process; true when it returns true. GPUs, environment, affinity and
/// torch's threads are the child's own.
bool in_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(GpuTable, NamesTheCardsOfTheReport) {
  std::set<std::string> pages, names;
  for (const GpuModel& gpu : gpu_table()) {
    EXPECT_TRUE(names.insert(gpu.driver_name).second) << gpu.driver_name << " twice";
    pages.insert(gpu.page_name);
    EXPECT_GT(gpu.dense_bf16_tflops, 50);
    EXPECT_LT(gpu.dense_bf16_tflops, 3000);
    EXPECT_GE(gpu.architecture, 80);
  }
  for (const char* page :
       {"A100", "L40S", "RTX A6000", "RTX 5090", "H100", "H100 PCIe", "H200", "B200"}) {
    EXPECT_TRUE(pages.contains(page)) << page;
  }
}

TEST(GpuTable, TellsVariantsApart) {
  EXPECT_EQ(find_gpu("NVIDIA H100 80GB HBM3")->page_name, "H100");
  EXPECT_EQ(find_gpu("NVIDIA H100 PCIe")->page_name, "H100 PCIe");
  EXPECT_GT(find_gpu("NVIDIA H200")->dense_bf16_tflops,
            find_gpu("NVIDIA H200 NVL")->dense_bf16_tflops);
  for (const char* name : {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "NVIDIA GeForce RTX 5090 D",
                           "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA L40", "Tesla T4", ""}) {
    EXPECT_FALSE(find_gpu(name).has_value()) << name;
  }
}

TEST(Ordinal, IsTheLocalRankOrTheOnlyGpu) {
  EXPECT_EQ(choose_ordinal(4, 2, 4, false), 2);
  EXPECT_EQ(choose_ordinal(8, 3, 4, false), 3);
  EXPECT_EQ(choose_ordinal(1, 3, 4, false), 0);  // the launcher shows each rank its own
  EXPECT_EQ(choose_ordinal(2, 3, 4, true), 1);
  const std::string text = usage_error([] { choose_ordinal(2, 0, 4, false); });
  EXPECT_TRUE(contains(text, "4 ranks on this host, but it has 2 GPUs")) << text;
}

TEST(UniqueGpus, TwoRanksOnOneGpuAreNamed) {
  const std::vector<std::pair<std::string, std::string>> apart = {
      {"a", "GPU-1"}, {"a", "GPU-2"}, {"b", "GPU-1"}, {"b", ""}, {"b", ""}};
  EXPECT_NO_THROW(check_unique_gpus(apart, false));
  auto shared = apart;
  shared[3] = {"a", "GPU-2"};
  const std::string text = usage_error([&] { check_unique_gpus(shared, false); });
  EXPECT_TRUE(contains(text, "ranks 1 and 3 share GPU GPU-2 of host a")) << text;
  EXPECT_NO_THROW(check_unique_gpus(shared, true));
}

TEST(ChooseDevice, WithNoGpuVisibleAutoIsTheCpuAndCudaIsRefused) {
  EXPECT_TRUE(in_child([] {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const DeviceInfo device = choose_device("auto", 0, 1, false);
    const std::string text = usage_error([] { choose_device("cuda", 0, 1, false); });
    return visible_gpu_count() == 0 && !device.cuda && device.torch_device().is_cpu() &&
           !device.name.empty() && device.memory_bytes > (1 << 20) && device.uuid.empty() &&
           contains(text, "--device cuda: no GPU is visible: CUDA_VISIBLE_DEVICES is empty") &&
           !contains(text, "\n");
  }));
}

TEST(ChooseDevice, RefusesAnUnknownOne) {
  EXPECT_TRUE(contains(usage_error([] { choose_device("gpu", 0, 1, false); }), "--device gpu"));
  EXPECT_FALSE(choose_device("cpu", 0, 64, false).cuda);
}

TEST(ActivateDevice, ACpuHasNoMemoryLimit) {
  const DeviceInfo cpu = choose_device("cpu", 0, 1, false);
  EXPECT_NO_THROW(activate_device(cpu, std::nullopt));
  EXPECT_TRUE(contains(usage_error([&] { activate_device(cpu, 32.0); }), "--memory-limit"));
}

TEST(CpuList, ReadsTheKernelsFormat) {
  EXPECT_EQ(parse_cpu_list("0-2,8"), (std::vector<int>{0, 1, 2, 8}));
  EXPECT_EQ(parse_cpu_list("5"), (std::vector<int>{5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("3-1").empty());
}

TEST(PhysicalCores, HoldEachAllowedCpuOnce) {
  const auto allowed = allowed_cpus(0);
  ASSERT_FALSE(allowed.empty());
  std::vector<int> found;
  for (const Core& core : physical_cores(allowed)) {
    found.insert(found.end(), core.cpus.begin(), core.cpus.end());
  }
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, allowed);
}

/// `count` cores with CPUs 0, 1, ...; the first half on node 0, the rest on node 1.
std::vector<Core> two_nodes(int count) {
  std::vector<Core> cores;
  for (int i = 0; i < count; ++i) cores.push_back({{i}, i < count / 2 ? 0 : 1});
  return cores;
}

std::vector<int> share(int cores, const std::vector<int>& nodes, int rank) {
  std::vector<int> cpus;
  for (const Core& core : share_of_cores(two_nodes(cores), nodes, rank)) {
    cpus.push_back(core.cpus.front());
  }
  return cpus;
}

TEST(Share, IsAPartitionWhereThereAreEnoughCores) {
  for (const auto& nodes :
       std::vector<std::vector<int>>{{-1}, {-1, -1, -1}, {0, 0, 1, 1}, {1, 0}, {0, 0, 0, 1, 1}}) {
    std::multiset<int> all;
    for (size_t r = 0; r < nodes.size(); ++r) {
      const auto mine = share(16, nodes, static_cast<int>(r));
      EXPECT_GE(mine.size(), 2u);
      all.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(all.size(), 16u);
    EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 16u);
  }
}

TEST(Share, IsNearTheGpu) {
  EXPECT_EQ(share(8, {1, 0}, 0), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(share(8, {0, 1, 1}, 2), (std::vector<int>{6, 7}));
  EXPECT_EQ(share(8, {7}, 0).size(), 8u);  // a node outside the cpuset: any core
}

TEST(Share, RanksBeyondTheCoresShareAll) {
  for (int r = 0; r < 4; ++r) EXPECT_EQ(share(2, {-1, -1, -1, -1}, r), (std::vector<int>{0, 1}));
  EXPECT_EQ(share(2, {-1, -1}, 1), (std::vector<int>{1}));
}

TEST(WhoBound, OnlyOpenMpisDefaultIsUndone) {
  const std::vector<int> all = {0, 1, 2, 3}, one = {2};
  using Environment = std::map<std::string, const char*>;
  const auto binder = [&](const std::vector<int>& mine, const std::string& launcher,
                          const Environment& environment, const std::string& line = "") {
    return who_bound(mine, {launcher, line, launcher.empty() ? std::vector<int>{} : all},
                     [&](const char* name) -> const char* {
                       const auto it = environment.find(name);
                       return it == environment.end() ? nullptr : it->second;
                     });
  };
  const Environment v4 = {{"OMPI_MCA_orte_ess_num_procs", "2"}};
  Environment bound = v4;
  bound["OMPI_MCA_orte_bound_at_launch"] = "1";
  EXPECT_EQ(binder(one, "mpirun", bound), Binder::mpi_default);
  EXPECT_EQ(binder(one, "orted", bound), Binder::mpi_default);
  EXPECT_EQ(binder(one, "prterun", {}), Binder::mpi_default);
  EXPECT_EQ(binder(all, "mpirun", v4), Binder::nobody);
  EXPECT_EQ(binder(one, "", {}), Binder::nobody);
  EXPECT_EQ(binder(one, "mpirun", v4), Binder::launcher);  // a wrapper such as taskset
  EXPECT_EQ(binder(one, "slurmstepd", {}), Binder::launcher);
  EXPECT_EQ(binder(one, "prterun", {}, "prterun --bind-to core"), Binder::launcher);
  for (const auto& [name, value] : Environment{{"OMPI_MCA_hwloc_base_binding_policy", "core"},
                                               {"OMPI_MCA_hwloc_base_cpu_set", "0"},
                                               {"OMPI_MCA_rmaps_base_mapping_policy", "slot:PE=2"},
                                               {"PRTE_MCA_hwloc_default_binding_policy", "core"}}) {
    Environment asked = bound;
    asked[name] = value;
    EXPECT_EQ(binder(one, "mpirun", asked), Binder::launcher) << name;
  }
  Environment mapped = bound;
  mapped["OMPI_MCA_rmaps_base_mapping_policy"] = "slot";
  EXPECT_EQ(binder(one, "mpirun", mapped), Binder::mpi_default);
}

/// In a child of a process named mpirun that may use all CPUs: the child is bound to its first
/// CPU as mpirun would, then asks for its affinity as the only rank.
bool under_mpirun(const char* policy, const std::function<bool(const Affinity&)>& expected) {
  return in_child([&] {
    prctl(PR_SET_NAME, "mpirun");
    unsetenv("OMP_NUM_THREADS");
    setenv("OMPI_MCA_orte_ess_num_procs", "1", 1);
    setenv("OMPI_MCA_orte_bound_at_launch", "1", 1);
    unsetenv("OMPI_MCA_hwloc_base_binding_policy");
    if (policy != nullptr) setenv("OMPI_MCA_hwloc_base_binding_policy", policy, 1);
    return in_child([&] {
      bind_all_threads({allowed_cpus(0).front()});
      return expected(apply_affinity(choose_device("cpu", 0, 1, false), 0, 1));
    });
  });
}

TEST(ApplyAffinity, UndoesTheDefaultAndKeepsWhatWasAskedFor) {
  const auto all = allowed_cpus(0);
  ASSERT_GE(all.size(), 2u) << "needs two CPUs to tell bound from unbound";
  const int cores = static_cast<int>(physical_cores(all).size());
  EXPECT_TRUE(under_mpirun(nullptr, [&](const Affinity& affinity) {
    return affinity.source == "mpi default replaced" && affinity.cores == all &&
           allowed_cpus(0) == all && affinity.torch_threads == cores &&
           at::get_num_threads() == cores && at::get_num_interop_threads() == 1;
  }));
  EXPECT_TRUE(under_mpirun("core", [&](const Affinity& affinity) {
    return affinity.source == "launcher" && affinity.cores == std::vector<int>{all.front()} &&
           allowed_cpus(0) == affinity.cores && at::get_num_threads() == 1;
  }));
}

TEST(ApplyAffinity, ThreadsOfAllRanksFitTheCores) {
  const int cores = static_cast<int>(physical_cores(allowed_cpus(0)).size());
  for (const int ranks : {1, 2, 4 * cores}) {
    EXPECT_TRUE(in_child([&] {
      unsetenv("OMP_NUM_THREADS");
      const auto affinity = apply_affinity(choose_device("cpu", 0, ranks, false), 0, ranks);
      return affinity.torch_threads == std::max(1, cores / ranks) &&
             at::get_num_threads() == affinity.torch_threads;
    })) << ranks;
  }
}

TEST(LostContext, SaysWhatHappenedNotWhoSawIt) {
  EXPECT_EQ(lost_context("GPU", 0), "");
  EXPECT_EQ(
      lost_context("NVIDIA H200", 710),
      "NVIDIA H200 lost its CUDA context: device-side assert triggered (cudaErrorAssert), by a "
      "kernel launched in this step or an earlier one");
  // Codes of the CUDA runtime: illegal address, time-out, stack, instruction, alignment, address
  // space, program counter, launch failure.
  for (const int error : {700, 702, 714, 715, 716, 717, 718, 719}) {
    const auto text = lost_context("GPU", error);
    EXPECT_TRUE(contains(text, "by a kernel launched in this step or an earlier one")) << text;
    EXPECT_FALSE(contains(text, "unrecognized")) << text;
  }
  for (const int error : {214, 220, 999}) {  // uncorrectable ECC, NVLink, unknown
    const auto text = lost_context("GPU", error);
    EXPECT_TRUE(contains(text, "GPU lost its CUDA context: ")) << text;
    EXPECT_FALSE(contains(text, "kernel")) << text;
  }
  EXPECT_TRUE(contains(lost_context("GPU", 214), "uncorrectable ECC error"));
}

}  // namespace
