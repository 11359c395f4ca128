// What the launcher's environment tells before MPI is up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "core/error.h"
#include "launch/launched.h"

namespace trainsuite {
namespace {

/// An environment that holds only these variables; they must outlive it.
Environment only(const std::map<std::string, std::string>& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launched, AScriptOfAJobIsOneProcess) {
  const std::map<std::string, std::string> script{
      {"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(launched_rank(only(script)), 0);
  EXPECT_EQ(launched_size(only(script)), 1);
  EXPECT_FALSE(launch_mistake(only(script)));
}

TEST(Launched, TasksWithPmixAreRanks) {
  const std::map<std::string, std::string> task{{"SLURM_STEP_ID", "0"},
                                                {"SLURM_PROCID", "3"},
                                                {"SLURM_STEP_NUM_TASKS", "4"},
                                                {"PMIX_RANK", "3"}};
  EXPECT_EQ(launched_rank(only(task)), 3);
  EXPECT_EQ(launched_size(only(task)), 4);
  EXPECT_FALSE(launch_mistake(only(task)));
}

TEST(Launched, TasksWithoutPmixAreTold) {
  for (const char* other : {"SLURM_JOB_ID", "PMI_RANK"}) {  // srun's PMI-2 does not serve Open MPI
    const std::map<std::string, std::string> task{
        {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "3"}, {other, "3"}};
    const auto mistake = launch_mistake(only(task));
    ASSERT_TRUE(mistake) << other;
    EXPECT_NE(mistake->find("srun --mpi=pmix"), std::string::npos) << *mistake;
    EXPECT_NE(mistake->find("mpirun"), std::string::npos) << *mistake;
  }
}

TEST(Launched, RanksOfMpirunWithinAJobAreNoTasks) {
  // mpirun's helpers on the nodes are tasks of srun, and their variables reach the ranks.
  const std::map<std::string, std::string> rank{{"SLURM_STEP_ID", "0"},
                                                {"SLURM_PROCID", "1"},
                                                {"SLURM_STEP_NUM_TASKS", "2"},
                                                {"OMPI_COMM_WORLD_RANK", "5"},
                                                {"OMPI_COMM_WORLD_SIZE", "8"}};
  EXPECT_EQ(launched_rank(only(rank)), 5);
  EXPECT_EQ(launched_size(only(rank)), 8);
  EXPECT_FALSE(launch_mistake(only(rank)));
}

TEST(Launched, AnInterfaceReachesMpi) {
  unsetenv("OMPI_MCA_btl_tcp_if_include");
  setenv("OMPI_MCA_btl_tcp_if_exclude", "docker0", 1);
  EXPECT_FALSE(use_interface("lo"));
  EXPECT_STREQ(getenv("OMPI_MCA_btl_tcp_if_include"), "lo");
  EXPECT_EQ(getenv("OMPI_MCA_btl_tcp_if_exclude"), nullptr);  // Open MPI refuses both together
  EXPECT_FALSE(use_interface("lo"));                          // said once more: nothing overruled
  setenv("OMPI_MCA_btl_tcp_if_include", "eth7", 1);
  const auto note = use_interface("lo");
  ASSERT_TRUE(note);
  EXPECT_NE(note->find("instead of eth7"), std::string::npos) << *note;
}

TEST(Launched, AnUnknownInterfaceIsRefusedWithThoseThereAre) {
  unsetenv("OMPI_MCA_btl_tcp_if_include");
  try {
    use_interface("nosuch0");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    const std::string words = error.what();
    EXPECT_NE(words.find("nosuch0"), std::string::npos) << words;
    EXPECT_NE(words.find("it has lo"), std::string::npos) << words;
  }
  EXPECT_EQ(getenv("OMPI_MCA_btl_tcp_if_include"), nullptr);
}

}  // namespace
}  // namespace trainsuite
