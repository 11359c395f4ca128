// One conformance test for all communicators, under mpirun with any number of ranks.
//   test_communicator [--backend mpi|nccl] [--device cpu|cuda]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "comm/communicator.h"
#include "core/error.h"
#include "device/device.h"
#include "launch/world.h"

namespace {

using namespace trainsuite;

World* world = nullptr;
std::string backend = "mpi", device_kind = "cpu";
at::Device device(at::kCPU);

constexpr double patient_seconds = 120;
constexpr double short_seconds = 0.5;
// More than one staging piece, and no multiple of one.
constexpr std::int64_t many_elements = 4'300'003;
constexpr std::int64_t some_elements = 200'003;

int last() { return world->size() - 1; }

std::unique_ptr<Communicator> make() {
  CommunicatorOptions options;
  options.init_seconds = patient_seconds;
  return make_communicator(backend, *world, options);
}

/// Small integers, exact in every dtype also after the sum over all ranks; differ by rank.
at::Tensor pattern(int rank, std::int64_t elements, at::ScalarType dtype) {
  const at::Tensor index = at::arange(elements, at::TensorOptions(at::kLong));
  return index.add(rank).remainder(7).add(rank).to(at::TensorOptions(device).dtype(dtype));
}

at::Tensor sum_of_patterns(std::int64_t elements, at::ScalarType dtype) {
  at::Tensor sum = pattern(0, elements, at::kDouble);
  for (int r = 1; r < world->size(); ++r) sum += pattern(r, elements, at::kDouble);
  return sum.to(dtype);
}

template <class E, class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const E& error) {
    return *error.what() ? error.what() : "(no text)";
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

const at::ScalarType all_types[] = {at::kFloat, at::kBFloat16, at::kLong};

TEST(Communicator, KnowsWhatItIs) {
  const auto comm = make();
  EXPECT_EQ(comm->name(), backend);
  EXPECT_EQ(comm->asynchronous(), backend == "nccl");
  EXPECT_EQ(comm->rank(), world->rank());
  EXPECT_EQ(comm->size(), world->size());
}

TEST(Communicator, AllReduceSums) {
  const auto comm = make();
  for (const auto dtype : all_types) {
    for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, many_elements}) {
      at::Tensor tensor = pattern(world->rank(), elements, dtype);
      comm->all_reduce(tensor);
      comm->synchronize();
      EXPECT_TRUE(at::equal(tensor, sum_of_patterns(elements, dtype)))
          << at::toString(dtype) << " " << elements;
    }
  }
}

TEST(Communicator, ReduceScatterGivesEachRankItsRowOfTheSum) {
  const auto comm = make();
  const int ranks = world->size();
  for (const auto dtype : all_types) {
    for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{2}, some_elements}) {
      const at::Tensor mine = pattern(world->rank(), ranks * elements, dtype).view({ranks, -1});
      const at::Tensor before = mine.clone();
      at::Tensor row = at::empty({elements}, mine.options());
      comm->reduce_scatter(mine, row);
      comm->synchronize();
      const at::Tensor sum = sum_of_patterns(ranks * elements, dtype).view({ranks, -1});
      EXPECT_TRUE(at::equal(row, sum.select(0, world->rank())))
          << at::toString(dtype) << " " << elements;
      EXPECT_TRUE(at::equal(mine, before)) << "what is sent stays as it was";
    }
  }
  at::Tensor short_row = at::empty({1}, at::TensorOptions(device).dtype(at::kFloat));
  EXPECT_NE(error_of<Error>([&] {
              make()->reduce_scatter(pattern(0, 2 * ranks, at::kFloat).view({ranks, 2}), short_row);
            }).find("shape"),
            std::string::npos);
}

TEST(Communicator, TwoRanksExchangeWhileOthersDoNot) {
  const auto comm = make();
  const int ranks = world->size(), me = world->rank();
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      if (me != a && me != b) continue;
      const int peer = me == a ? b : a;
      const at::Tensor mine = pattern(me, many_elements, at::kFloat);
      at::Tensor theirs = at::zeros_like(mine);
      comm->exchange(mine, theirs, peer);
      comm->synchronize();
      EXPECT_TRUE(at::equal(theirs, pattern(peer, many_elements, at::kFloat))) << a << " " << b;
      EXPECT_TRUE(at::equal(mine, pattern(me, many_elements, at::kFloat)));
    }
  }
}

TEST(Communicator, AllReduceIsInPlaceAndKeepsTheShape) {
  const auto comm = make();
  at::Tensor whole = pattern(world->rank(), 24, at::kFloat).view({2, 3, 4});
  const at::Tensor before = whole.clone();
  at::Tensor part = whole.select(0, 1);  // contiguous, with an offset
  comm->all_reduce(part);
  comm->synchronize();
  EXPECT_TRUE(at::equal(whole.select(0, 0), before.select(0, 0)));
  const at::Tensor sum = sum_of_patterns(24, at::kFloat).view({2, 3, 4});
  EXPECT_TRUE(at::equal(whole.select(0, 1), sum.select(0, 1)));
}

TEST(Communicator, Bfloat16SumsAreNearTheExactOnesAndEqualOnAllRanks) {
  const auto comm = make();
  const auto value = [](int rank) {
    return at::arange(1, 1001, at::TensorOptions(at::kFloat)).mul(0.37 + rank).sin();
  };
  at::Tensor exact = at::zeros({1000}, at::TensorOptions(at::kDouble));
  for (int r = 0; r < world->size(); ++r) exact += value(r).to(at::kBFloat16).to(at::kDouble);
  at::Tensor sum = value(world->rank()).to(at::kBFloat16).to(device);
  comm->all_reduce(sum);
  comm->synchronize();
  const at::Tensor error = (sum.cpu().to(at::kDouble) - exact).abs();
  // One rounding is half an ulp, at most 2^-8 relative; NCCL may round after each of size - 1
  // additions.
  const double roundings = backend == "mpi" ? 1 : world->size();
  const at::Tensor bound =
      exact.abs().clamp_min(backend == "mpi" ? 0 : world->size()).mul(roundings / 256).add(1e-7);
  EXPECT_TRUE(error.le(bound).all().item<bool>()) << error.max();
  const std::string bytes(static_cast<const char*>(sum.cpu().data_ptr()), sum.nbytes());
  for (const std::string& other : world->all_gather(bytes)) EXPECT_TRUE(other == bytes);
}

TEST(Communicator, BroadcastTakesTheRootsValues) {
  const auto comm = make();
  for (const auto dtype : all_types) {
    for (const int root : {0, last()}) {
      at::Tensor tensor = pattern(world->rank(), many_elements, dtype);
      comm->broadcast(tensor, root);
      comm->synchronize();
      EXPECT_TRUE(at::equal(tensor, pattern(root, many_elements, dtype))) << at::toString(dtype);
    }
  }
}

TEST(Communicator, AllGatherPutsRowsInRankOrder) {
  const auto comm = make();
  for (const auto dtype : all_types) {
    const at::Tensor mine = pattern(world->rank(), 6, dtype).view({2, 3});
    at::Tensor all = at::zeros({world->size(), 2, 3}, mine.options());
    comm->all_gather(mine, all);
    comm->synchronize();
    for (int r = 0; r < world->size(); ++r) {
      EXPECT_TRUE(at::equal(all.select(0, r), pattern(r, 6, dtype).view({2, 3}))) << r;
    }
  }
}

TEST(Communicator, RefusesOtherTypesAndStrides) {
  const auto refused = [](at::Tensor tensor) {
    return error_of<Error>([&] { make()->all_reduce(tensor); });
  };
  const at::Tensor plain = at::zeros({4, 4}, at::TensorOptions(device).dtype(at::kFloat));
  EXPECT_EQ(refused(plain.to(at::kDouble)),
            backend + " all_reduce: dtype Double is not supported; float, bfloat16 and int64 are");
  EXPECT_EQ(refused(plain.t().narrow(0, 0, 2)),
            backend + " all_reduce: the tensor is not contiguous");
  const std::string bad_rows = error_of<Error>([&] {
    at::Tensor rows = at::zeros({world->size() + 1, 4, 4}, plain.options());
    make()->all_gather(plain, rows);
  });
  EXPECT_NE(bad_rows.find(fmt::format("shape [{}, 4, 4]", world->size())), std::string::npos);
  EXPECT_TRUE(world->agree(true));
}

TEST(Communicator, AfterAbortEveryCallThrows) {
  const auto comm = make();
  world->barrier();
  comm->abort();
  at::Tensor tensor = pattern(0, 3, at::kFloat);
  EXPECT_NE(error_of<Error>([&] { comm->all_reduce(tensor); }).find("abandoned"),
            std::string::npos);
  EXPECT_NE(error_of<Error>([&] { comm->barrier(); }).find("abandoned"), std::string::npos);
  EXPECT_NE(error_of<Error>([&] { comm->synchronize(); }).find("abandoned"), std::string::npos);
}

void expect_a_new_communicator_works() {
  world->clear_failures();
  EXPECT_TRUE(world->agree(true));
  const auto comm = make();
  at::Tensor tensor = pattern(world->rank(), some_elements, at::kFloat);
  comm->all_reduce(tensor);
  comm->synchronize();
  EXPECT_TRUE(at::equal(tensor, sum_of_patterns(some_elements, at::kFloat)));
}

TEST(Communicator, AFailingRankFreesTheOthers) {
  for (const auto dtype : all_types) {
    auto comm = make();
    at::Tensor tensor = pattern(world->rank(), some_elements, dtype);
    if (world->rank() == last()) {
      world->report_failure("out of memory in the forward pass");
    } else {
      const std::string text = error_of<PeerFailed>([&] {
        comm->all_reduce(tensor);
        comm->synchronize();
      });
      EXPECT_EQ(text, fmt::format("rank {} failed: out of memory in the forward pass", last()));
      EXPECT_NE(error_of<Error>([&] { comm->all_reduce(tensor); }).find("abandoned"),
                std::string::npos);
    }
    comm.reset();
    expect_a_new_communicator_works();
  }
}

TEST(Communicator, AnAbsentRankIsATimeout) {
  auto comm = make();
  at::Tensor tensor = pattern(world->rank(), some_elements, at::kFloat);
  if (world->rank() != last()) {
    world->set_deadline(short_seconds);
    const std::string text = error_of<Timeout>([&] {
      comm->all_reduce(tensor);
      comm->synchronize();
    });
    EXPECT_NE(text.find(backend), std::string::npos) << text;
    EXPECT_EQ(text.find("another error"), std::string::npos) << text;
    world->set_deadline(patient_seconds);
  }
  // The last rank leaves without a call; it must not free anything that the others wait for.
  world->clear_failures();
  comm.reset();
  expect_a_new_communicator_works();
}

TEST(Communicator, BarrierIsPassedOnlyWhenAllHaveEntered) {
  auto comm = make();
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(comm->barrier());
  if (world->rank() != last()) {
    world->set_deadline(short_seconds);
    const std::string text = error_of<Timeout>([&] { comm->barrier(); });
    EXPECT_NE(text.find(backend + " barrier"), std::string::npos) << text;
    EXPECT_EQ(text.find("another error"), std::string::npos) << text;
    world->set_deadline(patient_seconds);
  }
  world->clear_failures();
  comm.reset();
  expect_a_new_communicator_works();
}

/// Backends that can tell, report calls that differ between ranks; on one rank none can differ.
void expect_difference_is_named(std::int64_t elements, at::ScalarType dtype,
                                const std::string& what) {
  at::Tensor tensor = pattern(world->rank(), elements, dtype);
  const std::string text = error_of<Error>([&] { make()->all_reduce(tensor); });
  if (world->size() > 1) {
    EXPECT_EQ(text.find("mpi all_reduce: " + what + " differs between ranks"), 0u) << text;
  } else {
    EXPECT_EQ(text, "no error");
  }
  expect_a_new_communicator_works();
}

TEST(MpiCommunicator, DifferentCallsAreNamedOnEveryRank) {
  const bool odd = world->rank() == last();
  expect_difference_is_named(odd ? 10 : 12, at::kFloat, "numel");
  expect_difference_is_named(12, odd ? at::kFloat : at::kBFloat16, "dtype");
}

TEST(ApplyLink, SetsWhatTheLinkMeansAndSaysWhatItOverrules) {
  setenv("NCCL_P2P_DISABLE", "0", 1);
  setenv("NCCL_IB_DISABLE", "1", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  unsetenv("NCCL_NET");
  CommunicatorOptions options;
  EXPECT_TRUE(apply_link(options).empty());
  EXPECT_STREQ(getenv("NCCL_P2P_DISABLE"), "0");
  options.link = "socket";
  options.interface = "lo";
  const auto notes = apply_link(options);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "--link socket sets NCCL_P2P_DISABLE=1 instead of 0 from the environment");
  EXPECT_STREQ(getenv("NCCL_P2P_DISABLE"), "1");
  EXPECT_STREQ(getenv("NCCL_SHM_DISABLE"), "1");
  EXPECT_STREQ(getenv("NCCL_NET"), "Socket");
  EXPECT_STREQ(getenv("NCCL_SOCKET_IFNAME"), "=lo");
  EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST(ApplyLink, RefusesWhatDoesNotExist) {
  CommunicatorOptions options;
  options.interface = "nosuch0";
  EXPECT_NE(error_of<UsageError>([&] { apply_link(options); }).find("it has lo"),
            std::string::npos);
  EXPECT_THROW(make_communicator("smoke", *world, {}), UsageError);
}

const char* option(int argc, char** argv, const char* name, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) == 0) return argv[i + 1];
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  backend = option(argc, argv, "--backend", "mpi");
  device_kind = option(argc, argv, "--device", "cpu");
  World session(&argc, &argv);
  world = &session;
  world->set_deadline(patient_seconds);
  try {
    const bool share = backend == "mpi";
    const auto info = choose_device(device_kind, world->local_rank(), world->local_size(), share);
    at::set_num_threads(1);  // more would wait for each other where ranks share cores
    activate_device(info, std::nullopt);
    device = info.torch_device();
    if (backend != "mpi") testing::GTEST_FLAG(filter) += "-MpiCommunicator.*";
    const bool passed = RUN_ALL_TESTS() == 0;
    return world->agree(passed) ? 0 : 1;
  } catch (const std::exception& error) {
    world->abort(1, error.what());
  }
}
