// NCCL's own words, in the form of its log (NCCL 2.28: src/init.cc, src/transport/*.cc).
#include <gtest/gtest.h>

#include "comm/nccl_log.h"

namespace trainsuite {
namespace {

TEST(NcclLog, OfGpusOnOneHost) {
  const auto found = parse_nccl_log(
      "node:7:7 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n"
      "node:7:7 [0] NCCL INFO Using network Socket\n"
      "node:7:9 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p\n"
      "node:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
      "node:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
      "node:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 2[2] via SHM/direct/direct\n");
  EXPECT_EQ(found.plugin, "none");
  EXPECT_EQ(found.network, "Socket");
  EXPECT_EQ(found.transports, (std::vector<std::string>{"P2P/CUMEM", "SHM"}));
  EXPECT_EQ(found.channels, "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p");
  EXPECT_FALSE(found.gpudirect);
  for (const auto& setting : nccl_settings(found)) EXPECT_NE(setting.name, "nccl_gpudirect");
}

TEST(NcclLog, OfSeveralHosts) {
  const auto found = parse_nccl_log(
      "node:7:7 [0] NCCL INFO NET/Plugin: Loaded net plugin AWS Libfabric (v10)\n"
      "node:7:7 [0] NCCL INFO Using network AWS Libfabric\n"
      "node:7:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
      "node:7:9 [0] some other program says via NET/Socket/0\n");
  EXPECT_EQ(found.plugin, "AWS Libfabric (v10)");
  EXPECT_EQ(found.network, "AWS Libfabric");
  EXPECT_EQ(found.transports, (std::vector<std::string>{"NET/IB"}));
  EXPECT_TRUE(found.gpudirect);
  const auto settings = nccl_settings(found);
  EXPECT_TRUE(std::any_of(settings.begin(), settings.end(), [](const Setting& one) {
    return one.name == "nccl_gpudirect" && one.value == Value(true);
  }));
}

TEST(NcclLog, SaysNothingOfWhatItDoesNotHold) {
  EXPECT_TRUE(nccl_settings(parse_nccl_log("")).empty());
}

TEST(NcclLog, AsksOnlyWhereTheUserDoesNot) {
  setenv("NCCL_DEBUG", "WARN", 1);
  {
    const NcclLog log;
    EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "WARN");
    EXPECT_EQ(std::getenv("NCCL_DEBUG_FILE"), nullptr);
  }
  unsetenv("NCCL_DEBUG");
  std::string path;
  {
    const NcclLog log;
    EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
    path = std::getenv("NCCL_DEBUG_FILE");
    std::FILE* file = std::fopen(path.c_str(), "w");
    std::fputs("x [0] NCCL INFO Using network IB\n", file);
    std::fclose(file);
    EXPECT_EQ(log.read().network, "IB");
  }
  EXPECT_EQ(std::fopen(path.c_str(), "r"), nullptr);
}

}  // namespace
}  // namespace trainsuite
