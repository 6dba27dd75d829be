// See cache.h.
#include "hub/cache.h"

#include <absl/strings/str_replace.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/nearest.h"
#include "hub/foreign_cache.h"
#include "hub/listing.h"

namespace nereid::hub {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxRecordBytes = size_t{64} << 20;
constexpr char kRefs[] = "refs";
constexpr char kLock[] = ".lock";

fs::path ref_of(const HubSettings& settings, const ModelName& model) {
  return folder_of(settings, model) / kRefs / url_path(model.revision, /*encodes_slash=*/true);
}

StatusOr<RecordedFile> parse_recorded(const json::value& value) {
  const json::object* const entry = value.if_object();
  const auto text = [&](std::string_view name) -> std::string {
    const json::value* const field = entry ? entry->if_contains(name) : nullptr;
    return field && field->is_string() ? std::string(field->get_string()) : "";
  };
  RecordedFile file{text("name"), 0, {}};
  RETURN_IF_ERROR(check_file_name(file.name));
  const json::value* const size = entry->if_contains("size");
  const auto checksum = parse_checksum(text("checksum"));
  if (!size || !size->is_int64() || size->get_int64() < 0 || !checksum)
    return invalid_argument("file '{}': no size or checksum", quoted_name(file.name));
  file.size = size->get_int64();
  file.checksum = *checksum;
  return file;
}

bool has_in_full(const fs::path& folder, const RecordedFile& file) {
  std::error_code error;
  const fs::path path = folder / file.name;
  return fs::is_regular_file(fs::symlink_status(path, error)) &&
         fs::file_size(path, error) == static_cast<uintmax_t>(file.size) && !error;
}

bool has_all(const fs::path& folder, const Record& record) {
  return std::ranges::all_of(record.files,
                             [&](const RecordedFile& file) { return has_in_full(folder, file); });
}

bool is_complete_for(const fs::path& folder, const Record& record, const ModelName& model) {
  if (!has_all(folder, record)) return false;
  if (model.file.empty()) return record.has_checkpoint;
  return record.has(model.file);
}

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error, ignored;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(ignored) && !it->is_symlink(ignored))
      bytes += static_cast<int64_t>(it->file_size(ignored));
  return bytes;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  std::ranges::sort(out);
  return out;
}

std::optional<ModelName> model_of_folder(const std::string& folder) {
  const size_t dashes = folder.find("--");
  if (dashes == folder.npos) return std::nullopt;
  auto model = parse_model_name(folder.substr(0, dashes) + "/" + folder.substr(dashes + 2));
  if (!model.ok()) return std::nullopt;
  return *std::move(model);
}

// The revisions of a model's folder by commit.
std::multimap<std::string, std::string> refs_of(const fs::path& folder) {
  std::multimap<std::string, std::string> out;
  for (const fs::path& ref : entries_of(folder / kRefs)) {
    const auto commit = read_file(ref, 100);
    if (commit.ok() && is_commit(*commit))
      out.emplace(*commit, absl::StrReplaceAll(ref.filename().string(), {{"%2F", "/"}}));
  }
  return out;
}

void add_own(const HubSettings& settings, std::vector<ListedModel>& out) {
  for (const fs::path& folder : entries_of(settings.models_dir)) {
    const auto model = model_of_folder(folder.filename().string());
    if (!model) continue;
    const auto refs = refs_of(folder);
    for (const fs::path& commit : entries_of(folder)) {
      const std::string name = commit.filename().string();
      if (!is_commit(name)) continue;
      ListedModel row{.model = model->id(), .commit = name, .path = commit};
      const auto [begin, end] = refs.equal_range(name);
      for (auto it = begin; it != end; ++it) row.revisions.push_back(it->second);
      const auto record = read_record(commit);
      row.is_complete = record.ok() && has_all(commit, *record);
      row.bytes = bytes_below(commit);
      std::error_code error;
      row.changed = fs::last_write_time(commit, error);
      out.push_back(std::move(row));
    }
  }
}

StatusOr<int> open_lock(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return unavailable("{}: {}", folder.string(), error.message());
  const fs::path path = folder / kLock;
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return unavailable("{}: {}", path.string(), std::strerror(errno));
  return fd;
}

}  // namespace

bool Record::has(std::string_view name) const {
  return std::ranges::any_of(files, [&](const RecordedFile& file) { return file.name == name; });
}

StatusOr<Record> read_record(const fs::path& folder) {
  const fs::path path = folder / kRecordName;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxRecordBytes));
  const auto parsed = parse_json(text);
  const json::object* const object = parsed.ok() ? parsed->if_object() : nullptr;
  const json::value* const files = object ? object->if_contains("files") : nullptr;
  if (!files || !files->is_array())
    return invalid_argument("{}: no record of a model", path.string());
  Record record;
  const auto text_of = [&](std::string_view name) -> std::string {
    const json::value* const field = object->if_contains(name);
    return field && field->is_string() ? std::string(field->get_string()) : "";
  };
  record.model = text_of("model");
  record.commit = text_of("commit");
  const json::value* const whole = object->if_contains("has_checkpoint");
  record.has_checkpoint = whole && whole->is_bool() && whole->get_bool();
  for (const json::value& entry : files->get_array()) {
    auto file = parse_recorded(entry);
    if (!file.ok()) return annotate(file.status(), path.string());
    record.files.push_back(*std::move(file));
  }
  return record;
}

Status write_record(const fs::path& folder, const Record& record) {
  json::array files;
  for (const RecordedFile& file : record.files)
    files.push_back({{"name", file.name}, {"size", file.size}, {"checksum", file.checksum.hex}});
  const json::object object = {{"model", record.model},
                               {"commit", record.commit},
                               {"has_checkpoint", record.has_checkpoint},
                               {"files", files}};
  return write_file_atomic(folder / kRecordName, json::serialize(object) + "\n");
}

fs::path folder_of(const HubSettings& settings, const ModelName& model) {
  return settings.models_dir / model.folder();
}

std::string known_commit(const HubSettings& settings, const ModelName& model) {
  if (is_commit(model.revision)) return model.revision;
  const auto text = read_file(ref_of(settings, model), 100);
  return text.ok() && is_commit(*text) ? *text : "";
}

Status remember_commit(const HubSettings& settings, const ModelName& model,
                       const std::string& commit) {
  if (is_commit(model.revision)) return ok();
  return write_file_atomic(ref_of(settings, model), commit);
}

StatusOr<std::optional<CachedModel>> find_cached(const HubSettings& settings,
                                                 const ModelName& model) {
  if (const std::string commit = known_commit(settings, model); !commit.empty()) {
    const fs::path folder = folder_of(settings, model) / commit;
    const auto record = read_record(folder);
    if (record.ok() && is_complete_for(folder, *record, model))
      return CachedModel{model.file.empty() ? folder : folder / model.file, commit, false};
  }
  return find_foreign(settings, model);
}

StatusOr<ModelLock> ModelLock::take(const fs::path& folder, const std::atomic<bool>& is_cancelled) {
  ASSIGN_OR_RETURN(const int fd, open_lock(folder));
  ModelLock lock(fd);
  for (bool is_first = true; ::flock(fd, LOCK_EX | LOCK_NB) != 0; is_first = false) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return unavailable("{}: {}", folder.string(), std::strerror(errno));
    if (is_cancelled) return cancelled("stopped");
    if (is_first) log_warn("{}: another process pulls this model; waiting for it", folder.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return lock;
}

StatusOr<ModelLock> ModelLock::try_take(const fs::path& folder) {
  ASSIGN_OR_RETURN(const int fd, open_lock(folder));
  ModelLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    return resource_exhausted("{}: another process pulls this model", folder.string());
  return lock;
}

ModelLock::~ModelLock() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<ListedModel> list_models(const HubSettings& settings) {
  std::vector<ListedModel> out;
  add_own(settings, out);
  add_foreign(settings, out);
  std::ranges::stable_sort(out, std::greater<>(), &ListedModel::changed);
  return out;
}

StatusOr<int64_t> remove_model(const HubSettings& settings, const ModelName& model,
                               bool all_revisions) {
  const fs::path folder = folder_of(settings, model);
  std::error_code error;
  const std::string commit = known_commit(settings, model);
  const bool is_there = all_revisions ? fs::is_directory(folder, error)
                                      : !commit.empty() && fs::is_directory(folder / commit, error);
  if (!is_there) {
    ASSIGN_OR_RETURN(const auto foreign, find_foreign(settings, model));
    if (foreign)
      return not_found(
          "{}: lies in the cache of the hub's own tools ({}), where nereid removes "
          "nothing: `hf cache delete` does",
          model.text(), foreign->path.string());
    std::set<std::string> names;
    for (const ListedModel& row : list_models(settings)) names.insert(row.model);
    return not_found("{}: was not pulled.{}", model.text(), did_you_mean(model.id(), names));
  }
  ASSIGN_OR_RETURN(const ModelLock lock, ModelLock::try_take(folder));
  const auto refs = refs_of(folder);
  const fs::path gone = all_revisions ? folder : folder / commit;
  const int64_t bytes = bytes_below(gone);
  // The record goes first: what is left of a removal that is cut short is not complete.
  for (const fs::path& entry : all_revisions ? entries_of(folder) : std::vector{gone})
    fs::remove(entry / kRecordName, error);
  fs::remove_all(gone, error);
  if (error) return unavailable("{}: {}", gone.string(), error.message());
  if (all_revisions) return bytes;
  const auto [begin, end] = refs.equal_range(commit);
  for (auto it = begin; it != end; ++it)
    fs::remove(folder / kRefs / url_path(it->second, /*encodes_slash=*/true), error);
  const auto others = entries_of(folder);
  if (std::ranges::none_of(others,
                           [](const fs::path& p) { return is_commit(p.filename().string()); }))
    fs::remove_all(folder, error);
  return bytes;
}

}  // namespace nereid::hub
