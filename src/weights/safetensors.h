#pragma once
// Files in the safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes.
// Specification: https://huggingface.co/docs/safetensors. A file is not trusted: everything that
// the header says is checked against the file before a tensor is used.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trainsuite {

/// One tensor as the header describes it; bytes [begin, end) behind the header.
struct StoredTensor {
  std::string dtype;  // "F32", "F16", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
};

/// What a header of `length` bytes at `text` says of `data_bytes` bytes behind it, by name.
/// Throws Error, beginning with `path`, unless the tensors cover the data exactly, without holes or
/// overlaps, each of as many bytes as dtype and shape need.
std::map<std::string, StoredTensor> parse_safetensors_header(const char* text, std::size_t length,
                                                             std::int64_t data_bytes,
                                                             const std::string& path);

class MappedFile;

/// A file, mapped into memory.
class Safetensors {
 public:
  /// Throws Error naming the file, what is wrong and the byte counts.
  explicit Safetensors(const std::string& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::string& path() const { return path_; }
  /// F32, F16 or BF16, on the CPU, in the file's memory: to be read, not written. Throws Error for
  /// a name that is not there and another dtype.
  at::Tensor tensor(const std::string& name) const;

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  std::int64_t data_start_ = 0;
  std::map<std::string, StoredTensor> tensors_;
};

/// Writes a file of contiguous CPU tensors (F32, F16, BF16) and puts it on disk. Throws Error
/// naming the file and the system's reason.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace trainsuite
