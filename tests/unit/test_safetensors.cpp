// The header of a safetensors file is hostile input: every lie is an Error, none is a crash.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "core/error.h"
#include "weights/safetensors.h"

namespace trainsuite {
namespace {

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";

std::map<std::string, StoredTensor> parse(const std::string& header, std::int64_t bytes = 32) {
  return parse_safetensors_header(header.data(), header.size(), bytes, "file");
}

std::string message(const std::string& header, std::int64_t bytes = 32) {
  try {
    parse(header, bytes);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

class File {
 public:
  File() : path(std::filesystem::temp_directory_path() / ("tensors-" + std::to_string(getpid()))) {}
  ~File() { std::filesystem::remove(path); }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& content) const { std::ofstream(path, std::ios::binary) << content; }
  std::string open_error() const {
    try {
      const Safetensors file(path.string());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path path;
};

TEST(SafetensorsHeader, SaysWhatIsThere) {
  const auto tensors = parse(kHeader);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors.at("a").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensors.at("b").begin, 24);
}

TEST(SafetensorsHeader, EveryLieIsNamed) {
  const std::pair<std::string, const char*> lies[] = {
      {replaced(kHeader, "[0,24]", "[0,20]"), "'a' has bytes 0 to 20 and needs 24"},
      {replaced(kHeader, "[0,24]", "[24,0]"), "'a' has bytes 24 to 0"},
      {replaced(kHeader, "[24,32]", "[0,8]"), "overlap or leave a hole"},
      {replaced(kHeader, "[24,32]", "[28,36]"), "ends at byte 36 of 32"},
      {replaced(kHeader, "[0,24]", "[-24,0]"), "not a number from 0"},
      {replaced(kHeader, "[0,24]", "[0.5,24]"), "not a number from 0"},
      {replaced(kHeader, "[0,24]", "[0]"), "not two"},
      {replaced(kHeader, "[2,3]", "[4611686018427387904,8]"), "larger than any file"},
      {replaced(kHeader, "[2,3]", "[18446744073709551615]"), "not a number from 0"},
      {replaced(kHeader, "F32", "F31"), "dtype of 'a'"},
      {replaced(kHeader, "\"shape\"", "\"shapes\""), "shape of 'a' is missing"},
      {replaced(kHeader, "\"b\"", "\"a\""), "has 'a' twice"},
      {replaced(kHeader, "{\"__", "[{\"__"), "no JSON"},
      {"[]", "no JSON object"},
      {"", "no JSON"},
      {"{\"a\":3}", "'a' has no dtype"},
      {std::string(100000, '['), "no JSON"},
  };
  for (const auto& [header, words] : lies) {
    EXPECT_NE(message(header).find(words), std::string::npos)
        << header.substr(0, 200) << " gave: " << message(header);
  }
  EXPECT_NE(message(kHeader, 40).find("end at byte 32 of 40"), std::string::npos);
  EXPECT_NE(message(kHeader, 30).find("cut short"), std::string::npos);
}

TEST(SafetensorsHeader, RandomDamageIsAnErrorOrHarmless) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string header = kHeader;
    const auto edits = 1 + random() % 4;
    for (unsigned edit = 0; edit < edits; ++edit) {
      const auto at = random() % header.size();
      if (random() % 3 == 0) header.erase(at, 1 + random() % 8);
      if (random() % 3 == 0) header.insert(at, 1, static_cast<char>(random()));
      if (!header.empty()) header[random() % header.size()] = static_cast<char>(random());
      if (header.empty()) header = "{";
    }
    try {
      std::int64_t covered = 0;
      for (const auto& [name, tensor] : parse(header)) covered += tensor.end - tensor.begin;
      EXPECT_EQ(covered, 32) << header;
    } catch (const Error&) {
    }
  }
}

TEST(Safetensors, WrittenTensorsComeBack) {
  const File file;
  const at::Tensor a = at::randn({3, 5}), b = at::randn({7}).to(at::kBFloat16),
                   c = at::randn({2, 2}).to(at::kHalf).t();
  write_safetensors(file.path.string(), {{"a", a}, {"b", b}, {"c", c}, {"none", at::empty({0})}});
  const Safetensors back(file.path.string());
  EXPECT_TRUE(at::equal(back.tensor("a"), a));
  EXPECT_TRUE(at::equal(back.tensor("b"), b));
  EXPECT_TRUE(at::equal(back.tensor("c"), c));
  EXPECT_EQ(back.tensor("none").numel(), 0);
  EXPECT_THROW(back.tensor("d"), Error);
  EXPECT_THROW(write_safetensors(file.path.string(), {{"a", a}}), Error);  // there already
}

TEST(Safetensors, DamagedFilesSayTheirByteCounts) {
  const File file;
  write_safetensors(file.path.string(), {{"a", at::ones({64})}});
  const std::string whole = file.bytes();
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    file.write(whole.substr(0, size));
    EXPECT_NE(file.open_error().find(file.path.string()), std::string::npos) << size;
  }
  file.write(whole + "x");
  EXPECT_NE(file.open_error().find("of 257"), std::string::npos) << file.open_error();
  file.write("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n");
  EXPECT_NE(file.open_error().find("a Git LFS pointer"), std::string::npos);
  file.write(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  EXPECT_NE(file.open_error().find("says its header has 9223372036854775807"), std::string::npos);
}

}  // namespace
}  // namespace trainsuite
