#include "weights/safetensors.h"

#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/synced_file.h"
#include "core/text.h"

namespace trainsuite {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // as the format's own library
constexpr std::size_t kMostDimensions = 16;
const std::string kPointer = "version https://git-lfs";

/// Bytes of an element; 0 for a dtype that is not known.
std::int64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> sizes{
      {"F64", 8}, {"F32", 4}, {"F16", 2},     {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},      {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1}};
  const auto known = sizes.find(dtype);
  return known == sizes.end() ? 0 : known->second;
}

std::optional<at::ScalarType> scalar_type(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  if (dtype == "F16") return at::kHalf;
  if (dtype == "BF16") return at::kBFloat16;
  return std::nullopt;
}

std::string dtype_name(at::ScalarType type) {
  if (type == at::kFloat) return "F32";
  if (type == at::kHalf) return "F16";
  if (type == at::kBFloat16) return "BF16";
  fail("safetensors: {} is not written; use float32, float16 or bfloat16", c10::toString(type));
}

class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::int64_t data_bytes)
      : path_(path), data_bytes_(data_bytes) {}

  std::map<std::string, StoredTensor> read(const char* text, std::size_t length) {
    const json header = parsed(text, length);
    if (!header.is_object()) bad("the header is no JSON object");
    std::map<std::string, StoredTensor> tensors;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      tensors.emplace(name, tensor_of(name, entry));
    }
    check_cover(tensors);
    return tensors;
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail("{}: {}; the file is damaged or no safetensors file", path_, what);
  }

  /// A name that comes twice would hide its first tensor.
  json parsed(const char* text, std::size_t length) const {
    std::vector<std::set<std::string>> seen;
    const auto watch = [&](int, json::parse_event_t event, json& value) {
      if (event == json::parse_event_t::object_start) seen.emplace_back();
      if (event == json::parse_event_t::object_end) seen.pop_back();
      if (event == json::parse_event_t::key &&
          !seen.back().insert(value.get<std::string>()).second) {
        bad(fmt::format("the header has {} twice", quoted(value.get<std::string>())));
      }
      return true;
    };
    try {
      return json::parse(text, text + length, watch);
    } catch (const json::exception&) {
      bad(fmt::format("the header of {} bytes is no JSON", length));
    }
  }

  /// A whole number from 0 that fits.
  std::int64_t number(const json& value, const std::string& name, const char* what) const {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      bad(fmt::format("{} of {} is not a number from 0", what, quoted(name)));
    }
    return value.get<std::int64_t>();
  }

  const json& array(const json& entry, const std::string& name, const char* what) const {
    const auto found = entry.find(what);
    if (found == entry.end() || !found->is_array() || found->size() > kMostDimensions) {
      bad(fmt::format("{} of {} is missing or no list", what, quoted(name)));
    }
    return *found;
  }

  StoredTensor tensor_of(const std::string& name, const json& entry) const {
    if (!entry.is_object()) bad(fmt::format("{} has no dtype and shape", quoted(name)));
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string() || element_bytes(*dtype) == 0) {
      bad(fmt::format("dtype of {} is missing or not known", quoted(name)));
    }
    StoredTensor tensor{*dtype, {}, 0, 0};
    std::int64_t bytes = element_bytes(tensor.dtype);
    for (const json& extent : array(entry, name, "shape")) {
      tensor.shape.push_back(number(extent, name, "shape"));
      if (__builtin_mul_overflow(bytes, tensor.shape.back(), &bytes)) {
        bad(fmt::format("shape of {} is larger than any file", quoted(name)));
      }
    }
    const json& offsets = array(entry, name, "data_offsets");
    if (offsets.size() != 2) bad(fmt::format("data_offsets of {} are not two", quoted(name)));
    tensor.begin = number(offsets[0], name, "data_offsets");
    tensor.end = number(offsets[1], name, "data_offsets");
    if (tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      bad(fmt::format("{} has bytes {} to {} and needs {}", quoted(name), tensor.begin, tensor.end,
                      bytes));
    }
    if (tensor.end > data_bytes_) {
      bad(fmt::format("{} ends at byte {} of {}: the file is cut short", quoted(name), tensor.end,
                      data_bytes_));
    }
    return tensor;
  }

  void check_cover(const std::map<std::string, StoredTensor>& tensors) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const auto& [name, tensor] : tensors) ranges.emplace_back(tensor.begin, tensor.end);
    std::sort(ranges.begin(), ranges.end());
    std::int64_t covered = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin != covered) {
        bad(fmt::format("tensors overlap or leave a hole at byte {} of {}", covered, data_bytes_));
      }
      covered = end;
    }
    if (covered != data_bytes_) {
      bad(fmt::format("the tensors end at byte {} of {}", covered, data_bytes_));
    }
  }

  std::string path_;
  std::int64_t data_bytes_;
};

}  // namespace

/// Read-only memory of a whole file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // for FIFOs
    if (file < 0) fail("{}: {}", path, std::strerror(errno));
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0;
    const bool plain = known && S_ISREG(status.st_mode);
    if (plain && status.st_size > 0) {
      size_ = status.st_size;
      memory_ = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, file, 0);
    }
    const int reason = errno;
    ::close(file);
    if (!plain) fail("{}: no plain file", path);
    if (memory_ == MAP_FAILED) fail("{}: {}", path, std::strerror(reason));
  }
  ~MappedFile() {
    if (size_ > 0) ::munmap(memory_, static_cast<std::size_t>(size_));
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const char* data() const { return static_cast<const char*>(memory_); }
  std::int64_t size() const { return size_; }

 private:
  void* memory_ = nullptr;
  std::int64_t size_ = 0;
};

std::map<std::string, StoredTensor> parse_safetensors_header(const char* text, std::size_t length,
                                                             std::int64_t data_bytes,
                                                             const std::string& path) {
  return HeaderReader(path, data_bytes).read(text, length);
}

Safetensors::Safetensors(const std::string& path)
    : path_(path), file_(std::make_shared<const MappedFile>(path)) {
  const std::int64_t size = file_->size();
  const auto pointer_bytes = static_cast<std::int64_t>(kPointer.size());
  if (size >= pointer_bytes &&
      kPointer.compare(0, kPointer.size(), file_->data(), kPointer.size()) == 0) {
    fail("{}: {} bytes, a Git LFS pointer and not the weights; fetch them with git lfs pull", path,
         size);
  }
  std::uint64_t length = 0;
  if (size < kLengthBytes) fail("{}: {} bytes, too short for a safetensors file", path, size);
  std::memcpy(&length, file_->data(), sizeof length);
  const auto most = static_cast<std::uint64_t>(std::min(size - kLengthBytes, kMostHeaderBytes));
  if (length > most) {
    fail(
        "{}: the file has {} bytes and says its header has {}; it is cut short or no safetensors"
        " file",
        path, size, length);
  }
  data_start_ = kLengthBytes + static_cast<std::int64_t>(length);
  tensors_ = parse_safetensors_header(file_->data() + kLengthBytes,
                                      static_cast<std::size_t>(length), size - data_start_, path);
}

at::Tensor Safetensors::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail("{}: there is no tensor {}", path_, quoted(name));
  const StoredTensor& stored = found->second;
  const auto type = scalar_type(stored.dtype);
  if (!type) {
    fail("{}: {} is {}; F32, F16 and BF16 can be read", path_, quoted(name), stored.dtype);
  }
  // The deleter keeps the mapping; data may lie at any byte, which copies on x86-64 allow.
  auto* const memory = const_cast<char*>(file_->data() + data_start_ + stored.begin);
  return at::from_blob(
      memory, stored.shape, [file = file_](void*) {}, at::TensorOptions().dtype(*type));
}

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  json header{{"__metadata__", {{"format", "pt"}}}};
  std::int64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto begin = end;
    end += static_cast<std::int64_t>(tensor.nbytes());
    header[name] = {{"dtype", dtype_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::vector<at::Tensor> plain;  // outlives the writing
  std::vector<std::pair<const void*, std::size_t>> parts{{&length, sizeof length},
                                                         {text.data(), text.size()}};
  for (const auto& [name, tensor] : tensors) {
    plain.push_back(tensor.contiguous());
    parts.emplace_back(plain.back().const_data_ptr(), plain.back().nbytes());
  }
  write_new_file(path, parts);
}

}  // namespace trainsuite
