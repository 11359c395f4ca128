// Texts of any length among ranks.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/check_mpi.h"
#include "core/error.h"
#include "launch/world.h"

namespace trainsuite {
namespace {

constexpr std::int64_t most_bytes = std::numeric_limits<int>::max();  // MPI counts are ints

struct GatherBuffers {
  std::string mine;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> all_bytes;
  std::vector<int> counts, offsets;
  std::string all;
};

void place_texts(GatherBuffers& b, std::int64_t total) {
  b.counts.assign(b.all_bytes.begin(), b.all_bytes.end());
  b.offsets.resize(b.counts.size());
  std::exclusive_scan(b.counts.begin(), b.counts.end(), b.offsets.begin(), 0);
  b.all.resize(static_cast<size_t>(total));
}

std::vector<std::string> split_texts(const GatherBuffers& b) {
  std::vector<std::string> texts;
  for (size_t r = 0; r < b.counts.size(); ++r) {
    texts.push_back(
        b.all.substr(static_cast<size_t>(b.offsets[r]), static_cast<size_t>(b.counts[r])));
  }
  return texts;
}

}  // namespace

void World::wait_keeping(MPI_Request& request, const char* what, std::shared_ptr<void> buffers) {
  try {
    wait(request, what);
  } catch (...) {
    abandoned_.push_back(std::move(buffers));
    throw;
  }
}

std::string World::broadcast(std::string text, int root) {
  auto bytes = std::make_shared<std::int64_t>(text.size());
  auto buffer = std::make_shared<std::string>(std::move(text));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibcast(bytes.get(), 1, MPI_INT64_T, root, control_, &request), "MPI_Ibcast");
  wait_keeping(request, "a broadcast", bytes);
  buffer->resize(static_cast<size_t>(*bytes));
  for (std::int64_t first = 0; first < *bytes; first += most_bytes) {
    const int count = static_cast<int>(std::min(most_bytes, *bytes - first));
    check_mpi(MPI_Ibcast(buffer->data() + first, count, MPI_BYTE, root, control_, &request),
              "MPI_Ibcast");
    wait_keeping(request, "a broadcast", buffer);
  }
  return std::move(*buffer);
}

std::vector<std::string> World::gather_texts(const std::string& text, bool everywhere) {
  auto b = std::make_shared<GatherBuffers>();
  b->mine = text;
  b->bytes = static_cast<std::int64_t>(text.size());
  b->all_bytes.resize(static_cast<size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&b->bytes, 1, MPI_INT64_T, b->all_bytes.data(), 1, MPI_INT64_T, control_,
                           &request),
            "MPI_Iallgather");
  wait_keeping(request, "a gather", b);
  const auto total = std::accumulate(b->all_bytes.begin(), b->all_bytes.end(), std::int64_t{0});
  if (total > most_bytes)
    fail("gather: {} bytes in all, at most {} are possible", total, most_bytes);
  const bool receives = everywhere || is_root();
  if (receives) place_texts(*b, total);
  const int count = static_cast<int>(b->bytes);
  if (everywhere) {
    check_mpi(MPI_Iallgatherv(b->mine.data(), count, MPI_BYTE, b->all.data(), b->counts.data(),
                              b->offsets.data(), MPI_BYTE, control_, &request),
              "MPI_Iallgatherv");
  } else {
    check_mpi(MPI_Igatherv(b->mine.data(), count, MPI_BYTE, b->all.data(), b->counts.data(),
                           b->offsets.data(), MPI_BYTE, 0, control_, &request),
              "MPI_Igatherv");
  }
  wait_keeping(request, "a gather", b);
  return receives ? split_texts(*b) : std::vector<std::string>{};
}

std::vector<std::string> World::gather(const std::string& text) {
  return gather_texts(text, false);
}

std::vector<std::string> World::all_gather(const std::string& text) {
  return gather_texts(text, true);
}

bool World::agree(bool mine) {
  auto flag = std::make_shared<int>(mine ? 1 : 0);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, flag.get(), 1, MPI_INT, MPI_MIN, control_, &request),
            "MPI_Iallreduce");
  wait_keeping(request, "an agreement", flag);
  return *flag != 0;
}

}  // namespace trainsuite
