#include "data/token_file.h"

#include <H5Cpp.h>

#include <boost/crc.hpp>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"

namespace trainsuite {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostElements = std::int64_t{1} << 33;  // what no honest file holds

class TokenFile {
 public:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}

  TrainingData read() {
    H5::Exception::dontPrint();
    if (!std::filesystem::exists(path_)) {
      fail("{}: no such file; trainsuite-prepare-data makes token files", path_);
    }
    if (!std::filesystem::is_regular_file(path_)) {  // HDF5 would wait for a FIFO's writer
      fail("{}: no plain file; trainsuite-prepare-data makes token files", path_);
    }
    try {
      file_.openFile(path_, H5F_ACC_RDONLY);
    } catch (const H5::Exception&) {
      fail("{}: no HDF5 file, or cut short; trainsuite-prepare-data makes token files", path_);
    }
    check_root();
    return {path_, vocabulary_, split("train"), split("held_out")};
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    fail("{}: {}; the file is damaged, prepare it again", path_, what);
  }

  static std::int64_t integer(const H5::H5Object& place, const std::string& name) {
    std::int64_t value = -1;
    if (!place.attrExists(name)) return value;
    const H5::Attribute attribute = place.openAttribute(name);
    if (attribute.getTypeClass() != H5T_INTEGER ||
        attribute.getSpace().getSimpleExtentNpoints() != 1)
      return value;
    attribute.read(H5::PredType::NATIVE_INT64, &value);
    return value;
  }

  void check_root() {
    std::string schema;
    if (file_.attrExists("schema")) {
      const H5::Attribute attribute = file_.openAttribute("schema");
      if (attribute.getTypeClass() == H5T_STRING &&
          attribute.getSpace().getSimpleExtentNpoints() == 1) {
        attribute.read(attribute.getStrType(), schema);
      }
    }
    if (schema != "trainsuite-tokens") {
      fail("{} is no token file (attribute schema is {}); trainsuite-prepare-data makes them",
           path_, trainsuite::quoted(schema));
    }
    if (const auto version = integer(file_, "schema_version"); version != kVersion) {
      fail("{} has schema version {}, this program reads {}; prepare it again", path_, version,
           kVersion);
    }
    vocabulary_ = integer(file_, "vocabulary");
    if (vocabulary_ < 1) damaged("attribute vocabulary is missing or not a number from 1");
    if (integer(file_, "limit_tokens") < 1) {
      damaged("attribute limit_tokens is missing or not a number from 1");
    }
  }

  /// Whole numbers of a dataset of `dimensions`; adds their bytes, as stored, to the checksum.
  template <class T>
  std::vector<T> whole(const std::string& name, int dimensions, const H5::PredType& type) {
    try {
      const H5::DataSet data = file_.openDataSet(name);
      const H5::DataSpace space = data.getSpace();
      if (data.getTypeClass() != H5T_INTEGER) damaged(name + " holds no whole numbers");
      if (!space.isSimple() || space.getSimpleExtentNdims() != dimensions) {
        damaged(
            fmt::format("{} has not {} dimension{}", name, dimensions, dimensions == 1 ? "" : "s"));
      }
      hsize_t extents[2] = {0, 2};
      space.getSimpleExtentDims(extents);
      if (extents[1] != 2) damaged(name + " does not hold pairs");
      const auto count = space.getSimpleExtentNpoints();
      if (count > kMostElements) damaged(fmt::format("{} says it has {} values", name, count));
      std::vector<T> values(static_cast<std::size_t>(count));
      if (count > 0) data.read(values.data(), type);
      crc_.process_bytes(values.data(), values.size() * sizeof(T));
      return values;
    } catch (const H5::Exception&) {
      damaged(name + " is missing or cannot be read");
    }
  }

  void check_rises(const std::vector<std::int64_t>& ends, std::size_t parts,
                   const std::string& name) const {
    bool rises =
        !ends.empty() && ends.front() == 0 && ends.back() == static_cast<std::int64_t>(parts);
    for (std::size_t i = 1; i < ends.size(); ++i) rises = rises && ends[i - 1] <= ends[i];
    if (!rises) damaged(fmt::format("{} does not rise from 0 to {}", name, parts));
  }

  void check_content(const Examples& examples, const std::string& name) const {
    check_rises(examples.offsets, examples.ids.size(), name + "/offsets");
    check_rises(examples.span_offsets, examples.spans.size(), name + "/span_offsets");
    if (examples.offsets.size() != examples.span_offsets.size()) {
      damaged(name + "'s offsets and span_offsets are not of one number of examples");
    }
    for (const std::int32_t id : examples.ids) {
      if (id < 0 || id >= vocabulary_) {
        damaged(fmt::format("{}/ids has {}, outside 0..{}", name, id, vocabulary_ - 1));
      }
    }
    for (std::int64_t i = 0; i < examples.count(); ++i) {
      for (const Span& span : examples.answers(i)) {
        if (span.begin < 0 || span.end < span.begin || span.end > examples.length(i)) {
          damaged(name + "/spans reaches outside its example");
        }
      }
    }
  }

  Examples split(const std::string& name) {
    crc_.reset();
    Examples examples;
    examples.offsets = whole<std::int64_t>(name + "/offsets", 1, H5::PredType::STD_I64LE);
    examples.span_offsets = whole<std::int64_t>(name + "/span_offsets", 1, H5::PredType::STD_I64LE);
    const auto pairs = whole<std::int64_t>(name + "/spans", 2, H5::PredType::STD_I64LE);
    examples.ids = whole<std::int32_t>(name + "/ids", 1, H5::PredType::STD_I32LE);
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
      examples.spans.push_back({pairs[i], pairs[i + 1]});
    }
    if (integer(file_.openGroup(name), "crc32") != static_cast<std::int64_t>(crc_.checksum())) {
      damaged(name + " does not have the content that its attribute crc32 was made of");
    }
    check_content(examples, name);
    return examples;
  }

  std::string path_;
  H5::H5File file_;
  std::int64_t vocabulary_ = 0;
  boost::crc_32_type crc_;
};

}  // namespace

TrainingData read_token_file(const std::string& path) {
  try {
    return TokenFile(path).read();
  } catch (const H5::Exception& error) {
    fail("{}: {}; the file is damaged, prepare it again", path, error.getDetailMsg());
  }
}

}  // namespace trainsuite
