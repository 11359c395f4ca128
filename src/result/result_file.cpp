#include "result/result_file.h"

#include <unistd.h>

#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/earlier_file.h"
#include "result/hdf5_image.h"
#include "result/hdf5_layout.h"

namespace trainsuite {

namespace {

std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// While the main file is small each new case makes a new copy of it. Beyond that a case becomes
/// a part file, and the parts are joined when they have grown to half of the main file, so that
/// a byte is copied a bounded number of times however long the run.
class DurableResultFile : public ResultFile {
 public:
  DurableResultFile(const std::string& path, const RunRecord& run, std::size_t small_file_bytes)
      : path_(path),
        parts_folder_(path + ".parts"),
        small_file_bytes_(small_file_bytes),
        file_id_(random_id()),
        planned_(run.planned.begin(), run.planned.end()) {
    Bytes image = new_image([&](H5::H5File& file) {
      put_root(file, file_id_);
      put_run(file, 0, run);
    });
    auto held = create_exclusively(path_, image);
    if (!held) {
      check_creatable(path_);
      fail("{} was created and removed by another program meanwhile; try again", path_);
    }
    remember(std::move(image), std::move(*held));
  }

  /// `held` is the file of the runs before, marked as used.
  DurableResultFile(const std::string& path, HeldFile held, const RunRecord& run,
                    std::size_t small_file_bytes)
      : path_(path),
        parts_folder_(path + ".parts"),
        small_file_bytes_(small_file_bytes),
        file_id_(read_earlier(path).file_id),
        held_(std::move(held)) {
    parts_ = part_files(path);
    run_number_ = static_cast<std::int64_t>(read_earlier(path).runs.size());
    replace_main([&](H5::H5File& file) {
      for (const std::string& part : parts_)
        read_image(read_whole(part), [&](H5::H5File& source) { copy_cases(source, file); });
      put_run(file, run_number_, run);
      set_complete(file, false);
      take_stock(read_earlier(file));
    });
    for (const std::string& part : parts_) unlink(part.c_str());
    parts_.clear();
    rmdir(parts_folder_.c_str());
  }

  const std::string& path() const override { return path_; }

  void append(const CaseRecord& record) override {
    const std::lock_guard lock(mutex_);
    const std::string row = case_path(record);
    if (rows_.contains(row)) fail("{}: {} is already recorded", path_, row);
    if (main_bytes_ < small_file_bytes_)
      replace_main([&](H5::H5File& file) { put_case(file, run_number_, record); });
    else
      append_part(record);
    rows_.insert(row);
    const Value* stopped = find_value(record.results, "stopped");
    if (stopped == nullptr) planned_.erase(record.name);
    if (parts_.empty() || 2 * parts_bytes_ < main_bytes_) return;
    try {
      join_parts(false);
    } catch (const Error&) {
      // The row is safe in its part; finish() joins again and reports what stands in the way.
    }
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    try {
      join_parts(planned_.empty());
    } catch (const Error& error) {
      if (parts_.empty()) throw;
      fail("{} (also in {}; `trainsuite-results join {}` joins them)", error.what(), parts_folder_,
           path_);
    }
  }

 private:
  void remember(Bytes image, HeldFile held) {
    main_bytes_ = image.size();
    image_ = main_bytes_ < small_file_bytes_ ? std::move(image) : Bytes();
    held_ = std::move(held);
  }

  void take_stock(const EarlierFile& earlier) {
    for (const EarlierRun& run : earlier.runs)
      planned_.insert(run.planned.begin(), run.planned.end());
    for (const EarlierRow& row : earlier.rows) {
      rows_.insert(fmt::format("{}/{}/{}", row.suite, row.name, row.repeat));
      if (!was_stopped(row)) planned_.erase(row.name);
    }
  }

  /// Another run's file at our path must not be overwritten.
  void check_ours() const {
    if (held_.lies_at(path_)) return;
    fail("{} was removed or replaced by another program during this run; it is left as it is",
         path_);
  }

  void replace_main(const FileChange& change) {
    check_ours();
    Bytes image = changed_image(image_.empty() ? read_whole(path_) : image_, change);
    HeldFile held = replace_durably(path_, image);
    remember(std::move(image), std::move(held));
  }

  void append_part(const CaseRecord& record) {
    const Bytes image = new_image([&](H5::H5File& file) {
      put_root(file, file_id_);
      put_case(file, run_number_, record);
    });
    if (parts_made_ == 0) make_folder(parts_folder_);
    const std::string part = fmt::format("{}/{}.h5", parts_folder_, parts_made_);
    replace_durably(part, image);
    ++parts_made_;
    parts_.push_back(part);
    parts_bytes_ += image.size();
  }

  /// One file again. The parts go only after the joined file is durable.
  void join_parts(bool complete) {
    if (parts_.empty() && !complete) return;
    replace_main([&](H5::H5File& file) {
      for (const std::string& part : parts_)
        read_image(read_whole(part), [&](H5::H5File& source) { copy_cases(source, file); });
      set_complete(file, complete);
    });
    for (const std::string& part : parts_) unlink(part.c_str());
    parts_.clear();
    parts_bytes_ = 0;
    if (parts_made_ > 0) rmdir(parts_folder_.c_str());
    parts_made_ = 0;
  }

  const std::string path_, parts_folder_;
  const std::size_t small_file_bytes_;
  const std::string file_id_;
  std::mutex mutex_;               // a watchdog may write the row of a case that hangs
  std::set<std::string> planned_;  // names that still lack a result
  std::set<std::string> rows_;
  std::int64_t run_number_ = 0;
  Bytes image_;  // the main file's content while it is small
  std::size_t main_bytes_ = 0, parts_bytes_ = 0;
  HeldFile held_;
  std::vector<std::string> parts_;
  int parts_made_ = 0;  // part numbers are never used twice between joins
};

}  // namespace

std::unique_ptr<ResultFile> ResultFile::create(const std::string& path, const RunRecord& run,
                                               std::size_t small_file_bytes) {
  check_creatable(path);
  return std::make_unique<DurableResultFile>(path, run, small_file_bytes);
}

std::unique_ptr<ResultFile> ResultFile::create_default(const std::string& suite,
                                                       const RunRecord& run) {
  for (int attempt = 0;; ++attempt) {
    try {
      return create(default_path(suite), run);
    } catch (const UsageError&) {
      // Another run took the name between the look and the creation.
      if (attempt == 20) throw;
    }
  }
}

std::unique_ptr<ResultFile> ResultFile::resume(const std::string& path, const RunRecord& run,
                                               std::size_t small_file_bytes) {
  for (;;) {
    HeldFile held(path);
    if (!held.mark_used())
      fail<UsageError>("--resume: another run is writing {}; wait until it ends", path);
    if (!held.lies_at(path)) continue;  // replaced meanwhile
    return std::make_unique<DurableResultFile>(path, std::move(held), run, small_file_bytes);
  }
}

}  // namespace trainsuite
