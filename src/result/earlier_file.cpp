#include "result/earlier_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/error.h"
#include "result/durable_file.h"
#include "result/hdf5_image.h"
#include "result/hdf5_layout.h"
#include "result/hdf5_reading.h"

namespace trainsuite {
namespace {

constexpr auto runs_group = "runs";

std::int64_t number_of(const std::string& text) {
  std::int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

EarlierRun read_run(const H5::Group& group) {
  EarlierRun run;
  run.attributes = get_values(group);
  run.planned = get_texts(group, "planned");
  const auto names = get_text_column(group, "ranks", "device_name");
  const auto bytes = get_integer_column(group, "ranks", "memory_bytes");
  for (std::size_t i = 0; i < names.size(); ++i)
    run.devices.push_back(device_line(names[i], bytes[i]));
  const auto models = get_text_column(group, "hosts", "cpu_model");
  const auto sockets = get_integer_column(group, "hosts", "sockets");
  const auto cores = get_integer_column(group, "hosts", "cores");
  for (std::size_t i = 0; i < models.size(); ++i)
    run.hosts.push_back(host_line(models[i], sockets[i], cores[i]));
  return run;
}

void read_rows(const H5::Group& root, std::vector<EarlierRow>& rows) {
  for (const std::string& suite : member_names(root)) {
    if (suite == runs_group) continue;
    const H5::Group cases = root.openGroup(suite);
    for (const std::string& name : member_names(cases)) {
      const H5::Group repeats = cases.openGroup(name);
      for (const std::string& repeat : member_names(repeats))
        rows.push_back({suite, name, number_of(repeat), get_values(repeats.openGroup(repeat))});
    }
  }
}

void check_schema(const std::string& path, const Settings& root) {
  const Value* version = find_value(root, "schema_version");
  if (text_of(root, "schema") != "trainsuite" || version == nullptr)
    fail<UsageError>("--resume: {} is no result file of trainsuite; name another with --out", path);
  const auto* number = std::get_if<std::int64_t>(version);
  if (number == nullptr || *number != schema_version)
    fail<UsageError>("--resume: {} has another schema version than {}; name another with --out",
                     path, schema_version);
}

}  // namespace

const Value* find_value(const Settings& settings, const std::string& name) {
  const auto at = std::find_if(settings.begin(), settings.end(),
                               [&](const Setting& setting) { return setting.name == name; });
  return at == settings.end() ? nullptr : &at->value;
}

std::string text_of(const Settings& settings, const std::string& name) {
  const Value* value = find_value(settings, name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  return text == nullptr ? "" : *text;
}

bool was_stopped(const EarlierRow& row) {
  const Value* value = find_value(row.attributes, "stopped");
  const auto* stopped = value == nullptr ? nullptr : std::get_if<bool>(value);
  return stopped != nullptr && *stopped;
}

std::vector<std::string> part_files(const std::string& path) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path + ".parts", none)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".h5") && !name.starts_with("."))
      found.emplace_back(number_of(name), entry.path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [number, part] : found) paths.push_back(std::move(part));
  return paths;
}

std::string device_line(const std::string& name, std::int64_t memory_bytes) {
  return fmt::format("{}, {} bytes", name, memory_bytes);
}

std::string host_line(const std::string& cpu_model, std::int64_t sockets, std::int64_t cores) {
  return fmt::format("{}, {} sockets, {} cores", cpu_model, sockets, cores);
}

EarlierFile read_earlier(H5::H5File& file) {
  EarlierFile earlier;
  const H5::Group root = file.openGroup("/");
  earlier.file_id = text_of(get_values(root), "file_id");
  if (root.nameExists(runs_group)) {
    const H5::Group runs = root.openGroup(runs_group);
    for (std::size_t n = 0; runs.nameExists(std::to_string(n)); ++n)
      earlier.runs.push_back(read_run(runs.openGroup(std::to_string(n))));
  }
  read_rows(root, earlier.rows);
  return earlier;
}

/// Shows the file at `path` to `look`; what cannot be read is a usage error with the words of
/// `refusal`, given the cause.
template <class Refusal>
void read_or_refuse(const std::string& path, const FileChange& look, Refusal refusal) {
  try {
    read_image(read_whole(path), look);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    fail<UsageError>("--resume: {}", refusal(error.what()));
  }
}

EarlierFile read_earlier(const std::string& path) {
  EarlierFile earlier;
  const auto look = [&](H5::H5File& file) {
    check_schema(path, get_values(file.openGroup("/")));
    earlier = read_earlier(file);
  };
  read_or_refuse(path, look, [&](const char* cause) {
    return fmt::format("{} cannot be read as a result file ({}); name another with --out", path,
                       cause);
  });
  for (const std::string& part : part_files(path)) {
    const auto look_at_part = [&](H5::H5File& file) {
      EarlierFile more = read_earlier(file);
      if (more.file_id != earlier.file_id)
        fail<UsageError>("--resume: {} belongs to another file than {}; remove it", part, path);
      const auto known = [&](const EarlierRow& row) {
        return std::any_of(earlier.rows.begin(), earlier.rows.end(), [&](const EarlierRow& other) {
          return other.suite == row.suite && other.name == row.name && other.repeat == row.repeat;
        });
      };
      std::erase_if(more.rows, known);  // joined before the part could be removed
      for (auto& row : more.rows) earlier.rows.push_back(std::move(row));
    };
    read_or_refuse(part, look_at_part, [&](const char* cause) {
      return fmt::format("the part file {} cannot be read ({}); without it its case runs again",
                         part, cause);
    });
  }
  return earlier;
}

}  // namespace trainsuite
