// See foreign_cache.h.
#include "hub/foreign_cache.h"

#include <algorithm>
#include <array>

#include "base/blanks.h"
#include "base/file.h"
#include "hub/listing.h"
#include "hub/text.h"

namespace nereid::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "models--";
constexpr std::array kTokenizers = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                    "vocab.txt",      "tekken.json",     "spiece.model",
                                    "tiktoken.model", "qwen.tiktoken"};

// Whether the file is there, in full and inside of the model's folder.
StatusOr<bool> has_file(const fs::path& folder, const fs::path& snapshot, std::string_view name) {
  const fs::path path = snapshot / name;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;  // a link to nothing, too
  const fs::path real = fs::canonical(path, error), top = fs::canonical(folder, error);
  const auto [at, rest] = std::mismatch(top.begin(), top.end(), real.begin(), real.end());
  if (error || at != top.end())
    return invalid_argument("{}: leads out of {}; refused", path.string(), folder.string());
  return true;
}

// The names of the safetensors that the snapshot needs; empty: unknown.
std::vector<std::string> needed_weights(const fs::path& snapshot) {
  const auto index = read_file(snapshot / kIndexFile, size_t{64} << 20);
  if (!index.ok()) return {"model.safetensors"};
  Listing all;
  std::error_code error;
  for (fs::directory_iterator it(snapshot, error), end; !error && it != end; it.increment(error))
    all.files.push_back({it->path().filename().string(), {}, {}});
  const auto files = weight_files(all, *index);
  std::vector<std::string> names;
  if (files.ok())
    for (const RemoteFile& file : *files) names.push_back(file.name);
  return names;
}

StatusOr<bool> is_complete(const fs::path& folder, const fs::path& snapshot,
                           const std::string& gguf) {
  if (!gguf.empty()) return has_file(folder, snapshot, gguf);
  std::vector<std::string> needed = needed_weights(snapshot);
  if (needed.empty()) return false;
  needed.emplace_back("config.json");
  for (const std::string& name : needed) {
    ASSIGN_OR_RETURN(const bool is_there, has_file(folder, snapshot, name));
    if (!is_there) return false;
  }
  for (const char* name : kTokenizers) {
    ASSIGN_OR_RETURN(const bool is_there, has_file(folder, snapshot, name));
    if (is_there) return true;
  }
  return false;
}

int64_t bytes_of(const fs::path& snapshot) {
  int64_t bytes = 0;
  std::error_code error, ignored;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  return bytes;
}

}  // namespace

StatusOr<std::optional<CachedModel>> find_foreign(const HubSettings& settings,
                                                  const ModelName& model) {
  if (settings.hub_cache.empty()) return std::nullopt;
  const fs::path folder = settings.hub_cache / (std::string(kPrefix) + model.folder());
  std::string commit = model.revision;
  if (!is_commit(commit)) {
    const auto text = read_file(folder / "refs" / model.revision, 100);
    if (!text.ok()) return std::nullopt;
    commit = without_blanks(*text);
    if (!is_commit(commit)) return std::nullopt;
  }
  const fs::path snapshot = folder / "snapshots" / commit;
  ASSIGN_OR_RETURN(const bool is_there, is_complete(folder, snapshot, model.file));
  if (!is_there) return std::nullopt;
  return CachedModel{model.file.empty() ? snapshot : snapshot / model.file, commit, true};
}

void add_foreign(const HubSettings& settings, std::vector<ListedModel>& out) {
  std::error_code error, ignored;
  for (fs::directory_iterator it(settings.hub_cache, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name = name.substr(kPrefix.size());
    const size_t dashes = name.find("--");
    if (dashes == name.npos) continue;
    const auto model = parse_model_name(name.substr(0, dashes) + "/" + name.substr(dashes + 2));
    if (!model.ok()) continue;
    for (fs::directory_iterator at(it->path() / "snapshots", ignored), last; !ignored && at != last;
         at.increment(ignored)) {
      const std::string commit = at->path().filename().string();
      if (!is_commit(commit)) continue;
      ListedModel row{
          .model = model->id(), .commit = commit, .is_foreign = true, .path = at->path()};
      const auto main = read_file(it->path() / "refs" / "main", 100);
      if (main.ok() && without_blanks(*main) == commit) row.revisions = {"main"};
      row.bytes = bytes_of(at->path());
      row.is_complete = is_complete(it->path(), at->path(), "").value_or(false);
      row.changed = fs::last_write_time(at->path(), ignored);
      out.push_back(std::move(row));
    }
  }
}

}  // namespace nereid::hub
