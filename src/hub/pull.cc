// See pull.h.
#include "hub/pull.h"

#include <sys/statvfs.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/progress.h"
#include "hub/client.h"
#include "hub/download.h"
#include "hub/listing.h"
#include "hub/retry.h"

namespace nereid::hub {
namespace fs = std::filesystem;
namespace {

// Room that stays free on the disk.
constexpr int64_t kSpareBytes = int64_t{64} << 20;

class Pull {
 public:
  Pull(const Curl& curl, const HubSettings& settings, const ModelName& model,
       const std::atomic<bool>& is_cancelled)
      : curl_(curl), shared_{settings, is_cancelled}, model_(model), client_(curl, shared_) {}

  StatusOr<Pulled> run();

 private:
  std::string near_names() const;
  Status list();
  StatusOr<std::vector<RecordedFile>> described(const std::vector<RemoteFile>& files);
  StatusOr<RecordedFile> describe(const RemoteFile& file);
  void take_equal_files(const std::vector<RecordedFile>& files) const;
  Status check_space(const std::vector<RecordedFile>& files) const;
  Status download_all(const std::vector<RecordedFile>& files);
  StatusOr<std::vector<RecordedFile>> weights();

  const Curl& curl_;
  Shared shared_;
  const ModelName model_;
  Client client_;
  Listing listing_;
  fs::path folder_;
  std::unique_ptr<ProgressBar> bar_;
  int64_t total_ = 0, there_ = 0;
};

// " Did you mean 'x'?", of the models that are on this machine.
std::string Pull::near_names() const {
  std::set<std::string> names;
  for (const ListedModel& row : list_models(shared_.settings))
    if (row.model != model_.id()) names.insert(row.model);
  return did_you_mean(model_.id(), names);
}

Status Pull::list() {
  const std::string url =
      fmt::format("{}/api/models/{}/revision/{}?blobs=true", shared_.settings.endpoint,
                  url_path(model_.id()), url_path(model_.revision, /*encodes_slash=*/true));
  const std::string what = model_.text();
  Reply reply;
  RETURN_IF_ERROR(repeat(shared_, [&]() -> Attempt {
    auto got = client_.send({.url = url, .max_body = kMaxListingBytes});
    if (!got.ok())
      return {got.status(),
              absl::IsUnavailable(got.status()) || absl::IsDeadlineExceeded(got.status())};
    reply = *std::move(got);
    Attempt judged = judge(reply, shared_.settings, what);
    const bool may_be_a_slip = absl::IsNotFound(judged.status) || reply.status == 401;
    if (may_be_a_slip && reply.error_code != "RevisionNotFound")
      judged.status =
          absl::Status(judged.status.code(), absl::StrCat(judged.status.message(), near_names()));
    return judged;
  }));
  auto listing = parse_listing(reply.body);
  if (!listing.ok())
    return annotate(listing.status(), fmt::format("{}: the hub's list of files", what));
  listing_ = *std::move(listing);
  if (is_commit(model_.revision) && listing_.commit != model_.revision)
    return invalid_argument("{}: the hub lists commit {}; refused", what, listing_.commit);
  return ok();
}

// Size and checksum of a file: from the list, else by asking for the file's headers.
StatusOr<RecordedFile> Pull::describe(const RemoteFile& file) {
  if (file.size && file.checksum) return RecordedFile{file.name, *file.size, *file.checksum};
  const std::string what = fmt::format("{}: file '{}'", model_.id(), quoted_name(file.name));
  Reply reply;
  RETURN_IF_ERROR(repeat(shared_, [&]() -> Attempt {
    auto got = client_.send(
        {.url = fmt::format("{}/{}/resolve/{}/{}", shared_.settings.endpoint, url_path(model_.id()),
                            listing_.commit, url_path(file.name)),
         .head = true});
    if (!got.ok())
      return {got.status(),
              absl::IsUnavailable(got.status()) || absl::IsDeadlineExceeded(got.status())};
    reply = *std::move(got);
    return judge(reply, shared_.settings, what);
  }));
  const auto size = file.size ? file.size : reply.size;
  const auto checksum = file.checksum ? file.checksum : reply.checksum;
  if (!size || !checksum)
    return invalid_argument("{}: the hub names no {}; refused", what,
                            size ? "checksum (ETag)" : "size");
  if (*size > (kind_of(file.name) == FileKind::kText ? kMaxTextBytes : kMaxFileBytes))
    return invalid_argument("{}: its size {} is beyond the limit", what, *size);
  if (!reply.commit.empty() && reply.commit != listing_.commit)
    return invalid_argument("{}: the hub has it of commit '{}', not {}; refused", what,
                            quoted_name(reply.commit), listing_.commit);
  return RecordedFile{file.name, *size, *checksum};
}

StatusOr<std::vector<RecordedFile>> Pull::described(const std::vector<RemoteFile>& files) {
  std::vector<RecordedFile> out;
  for (const RemoteFile& file : files) {
    ASSIGN_OR_RETURN(RecordedFile one, describe(file));
    out.push_back(std::move(one));
  }
  return out;
}

// Links files that another revision has with the same checksum.
void Pull::take_equal_files(const std::vector<RecordedFile>& files) const {
  std::error_code error;
  for (fs::directory_iterator it(folder_.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path() == folder_ || !is_commit(it->path().filename().string())) continue;
    const auto other = read_record(it->path());
    if (!other.ok()) continue;
    for (const RecordedFile& file : files) {
      const auto same = std::ranges::find_if(other->files, [&](const RecordedFile& theirs) {
        return theirs.checksum == file.checksum && theirs.size == file.size;
      });
      if (same == other->files.end() || bytes_there(folder_, file) == file.size) continue;
      std::error_code ignored;
      const fs::path from = it->path() / same->name, to = folder_ / file.name;
      if (!fs::is_regular_file(fs::symlink_status(from, ignored)) ||
          static_cast<int64_t>(fs::file_size(from, ignored)) != file.size)
        continue;
      fs::create_directories(to.parent_path(), ignored);
      fs::create_hard_link(from, to, ignored);
    }
  }
}

Status Pull::check_space(const std::vector<RecordedFile>& files) const {
  int64_t missing = 0;
  for (const RecordedFile& file : files) missing += file.size - bytes_there(folder_, file);
  struct statvfs space {};
  if (missing == 0 || ::statvfs(folder_.c_str(), &space) != 0) return ok();
  const auto free = static_cast<int64_t>(std::min<uint64_t>(
      uint64_t{space.f_bavail} * space.f_frsize, static_cast<uint64_t>(INT64_MAX)));
  if (free - kSpareBytes >= missing) return ok();
  return resource_exhausted("{}: {} are missing and {} are free on the disk of {}", model_.text(),
                            size_text(static_cast<double>(missing)),
                            size_text(static_cast<double>(free)), folder_.string());
}

Status Pull::download_all(const std::vector<RecordedFile>& files) {
  for (const RecordedFile& file : files) total_ += file.size;
  take_equal_files(files);
  RETURN_IF_ERROR(check_space(files));
  int64_t there = 0;
  for (const RecordedFile& file : files) there += bytes_there(folder_, file);
  bar_->set_total(total_);
  bar_->add_before(there);
  there_ += there;

  std::vector<const RecordedFile*> queue;
  for (const RecordedFile& file : files) queue.push_back(&file);
  std::ranges::stable_sort(queue, std::greater<>(), &RecordedFile::size);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Status fault;
  const auto work = [&](Client& client) {
    for (size_t i; (i = next++) < queue.size();) {
      const Status status =
          download(client, shared_, model_, listing_.commit, *queue[i], folder_, *bar_);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex);
      if (fault.ok() || absl::IsCancelled(fault)) fault = status;
      shared_.has_failed = true;
      return;
    }
  };
  const size_t num_threads =
      std::min(queue.size(), static_cast<size_t>(std::max(shared_.settings.files_at_once, 1)));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < num_threads; ++i)
      threads.emplace_back([&] {
        Client client(curl_, shared_);
        work(client);
      });
    work(client_);
  }
  return fault;
}

StatusOr<std::vector<RecordedFile>> Pull::weights() {
  std::string index;
  if (std::ranges::any_of(listing_.files,
                          [](const RemoteFile& f) { return f.name == kIndexFile; })) {
    ASSIGN_OR_RETURN(index, read_file(folder_ / kIndexFile, size_t{64} << 20));
  }
  ASSIGN_OR_RETURN(const std::vector<RemoteFile> files, weight_files(listing_, index));
  return described(files);
}

StatusOr<Pulled> Pull::run() {
  RETURN_IF_ERROR(list());
  const fs::path models = folder_of(shared_.settings, model_);
  folder_ = models / listing_.commit;
  ASSIGN_OR_RETURN(const std::vector<RemoteFile> first, first_files(listing_, model_));
  ASSIGN_OR_RETURN(const ModelLock lock, ModelLock::take(models, shared_.is_cancelled));
  const bool is_gguf = !model_.file.empty();
  const auto path = is_gguf ? folder_ / model_.file : folder_;

  ModelName of_commit = model_;
  of_commit.revision = listing_.commit;
  HubSettings own = shared_.settings;
  own.hub_cache.clear();
  ASSIGN_OR_RETURN(const auto there, find_cached(own, of_commit));
  if (there) {
    RETURN_IF_ERROR(remember_commit(shared_.settings, model_, listing_.commit));
    return Pulled{*there};
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return unavailable("{}: {}", folder_.string(), error.message());
  // A record that is there is of another selection of files (a .gguf file beside a checkpoint).
  Record record = read_record(folder_).value_or(Record{});
  record.has_checkpoint &= std::ranges::all_of(record.files, [&](const RecordedFile& file) {
    return bytes_there(folder_, file) == file.size;
  });
  record.model = model_.id();
  record.commit = listing_.commit;
  ASSIGN_OR_RETURN(std::vector<RecordedFile> files, described(first));
  bar_ = std::make_unique<ProgressBar>(model_.text(), 0, ProgressUnit::kBytes,
                                       ProgressBar::Lines::kYes);
  RETURN_IF_ERROR(download_all(files));
  if (!is_gguf) {
    ASSIGN_OR_RETURN(const std::vector<RecordedFile> weights, this->weights());
    RETURN_IF_ERROR(download_all(weights));
    files.insert(files.end(), weights.begin(), weights.end());
    record.has_checkpoint = true;
  }
  std::erase_if(record.files, [&](const RecordedFile& old) {
    return std::ranges::any_of(files, [&](const RecordedFile& f) { return f.name == old.name; }) ||
           bytes_there(folder_, old) != old.size;
  });
  record.files.insert(record.files.end(), files.begin(), files.end());
  RETURN_IF_ERROR(write_record(folder_, record));
  RETURN_IF_ERROR(remember_commit(shared_.settings, model_, listing_.commit));
  const int64_t downloaded = bar_->done() - there_;
  bar_.reset();
  return Pulled{{path, listing_.commit, false}, downloaded, total_};
}

Status offline_error(const HubSettings& settings, const ModelName& model) {
  const bool is_partial = !known_commit(settings, model).empty();
  return unavailable(
      "{}: is not complete in {}{}, and HF_HUB_OFFLINE forbids requests; run nereid pull {} where "
      "there is a network",
      model.text(), settings.models_dir.string(), is_partial ? " (a pull was not finished)" : "",
      model.text());
}

}  // namespace

StatusOr<Pulled> pull(const HubSettings& settings, const ModelName& model,
                      const std::atomic<bool>& is_cancelled) {
  if (settings.offline) {
    ASSIGN_OR_RETURN(const auto cached, find_cached(settings, model));
    if (cached) return Pulled{*cached};
    return offline_error(settings, model);
  }
  ASSIGN_OR_RETURN(const Curl* const curl, load_curl());
  if (!settings.token.empty() && settings.endpoint.starts_with("http://"))
    log_warn("HF_ENDPOINT is {}: the token is sent in TLS or to this machine alone",
             settings.endpoint);
  return Pull(*curl, settings, model, is_cancelled).run();
}

StatusOr<Pulled> find_or_pull(const HubSettings& settings, const ModelName& model,
                              const std::atomic<bool>& is_cancelled) {
  ASSIGN_OR_RETURN(const auto cached, find_cached(settings, model));
  if (cached) return Pulled{*cached};
  return pull(settings, model, is_cancelled);
}

}  // namespace nereid::hub
