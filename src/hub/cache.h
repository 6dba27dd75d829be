// The folder of models that were pulled, and the cache of the hub's own tools beside it.
//
//   models/ORG--NAME/.lock           locked by the process that pulls or removes
//   models/ORG--NAME/refs/REVISION   the commit that a branch or tag was when it was pulled
//   models/ORG--NAME/COMMIT/         the files, partial ones with the ending .part
//   models/ORG--NAME/COMMIT/.nereid-model.json   written last: files, sizes, checksums
//
// A model is complete when its .nereid-model.json lists what is asked for and all files of the list
// are there in full.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/checksum.h"
#include "hub/model_name.h"
#include "hub/settings.h"

namespace nereid::hub {

inline constexpr char kRecordName[] = ".nereid-model.json";
inline constexpr char kPartEnding[] = ".part";

struct RecordedFile {
  std::string name;
  int64_t size = 0;
  Checksum checksum;
};

// .nereid-model.json of a commit's folder.
struct Record {
  std::string model, commit;
  bool has_checkpoint = false;  // all safetensors and texts are there
  std::vector<RecordedFile> files;

  bool has(std::string_view name) const;
};

// NotFound: no record; InvalidArgument: a damaged one, with its path.
StatusOr<Record> read_record(const std::filesystem::path& folder);
Status write_record(const std::filesystem::path& folder, const Record& record);

// A model in a cache.
struct CachedModel {
  std::filesystem::path path;  // a folder, or a .gguf file
  std::string commit;
  bool is_foreign = false;  // in the cache of the hub's own tools
};

// The complete model, without any request; nullopt: it is not there. Errors: a cache that leads
// out of itself.
StatusOr<std::optional<CachedModel>> find_cached(const HubSettings& settings,
                                                 const ModelName& model);

// The commit of a revision, as of the last pull; "" = unknown.
std::string known_commit(const HubSettings& settings, const ModelName& model);
Status remember_commit(const HubSettings& settings, const ModelName& model,
                       const std::string& commit);

// models/ORG--NAME
std::filesystem::path folder_of(const HubSettings& settings, const ModelName& model);

// Excludes other processes from a model's folder, which is created. Released by the destructor.
class ModelLock {
 public:
  // Waits for the other process, with one line of log, until `is_cancelled`. Errors: Cancelled,
  // Unavailable (the folder cannot be made).
  static StatusOr<ModelLock> take(const std::filesystem::path& folder,
                                  const std::atomic<bool>& is_cancelled);
  // ResourceExhausted: another process has it.
  static StatusOr<ModelLock> try_take(const std::filesystem::path& folder);
  ModelLock(ModelLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ModelLock& operator=(ModelLock&&) = delete;
  ~ModelLock();

 private:
  explicit ModelLock(int fd) : fd_(fd) {}
  int fd_;
};

// A row of `nereid list`.
struct ListedModel {
  std::string model, commit;
  std::vector<std::string> revisions;  // branches and tags that are this commit
  int64_t bytes = 0;                   // on disk; partial files included
  bool is_complete = false;
  bool is_foreign = false;
  std::filesystem::path path;
  std::filesystem::file_time_type changed;
};

// All models of both caches, the newest first.
std::vector<ListedModel> list_models(const HubSettings& settings);

// Removes a pulled model: the commit that `model.revision` is, or all with `all_revisions`.
// Returns the bytes that became free. NotFound, with near names; ResourceExhausted: a process
// pulls it now.
StatusOr<int64_t> remove_model(const HubSettings& settings, const ModelName& model,
                               bool all_revisions);

}  // namespace nereid::hub
