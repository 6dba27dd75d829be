// See download.h.
#include "hub/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "hub/retry.h"

namespace nereid::hub {
namespace fs = std::filesystem;
namespace {

// Bytes that make the count of attempts begin anew.
constexpr int64_t kProgressBytes = int64_t{1} << 20;

// A file that is being written.
class PartFile {
 public:
  PartFile(Client& client, Shared& shared, ProgressBar& bar, const RecordedFile& file,
           std::string url, std::string what, fs::path path)
      : client_(client),
        shared_(shared),
        bar_(bar),
        file_(file),
        url_(std::move(url)),
        what_(std::move(what)),
        path_(std::move(path)) {}
  ~PartFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Opens the file and reads what an earlier process has left.
  Status open();
  // Whether size and checksum are right. Once after the last byte.
  bool is_right();
  Status fetch();
  Status empty();

 private:
  Attempt attempt();
  Status begin(int status, std::optional<int64_t> from, std::optional<int64_t> length);
  Status write(std::string_view bytes);
  Status system_error(std::string_view step) const;

  Client& client_;
  Shared& shared_;
  ProgressBar& bar_;
  const RecordedFile& file_;
  const std::string url_, what_;
  const fs::path path_;
  int fd_ = -1;
  int64_t size_ = 0;  // written and hashed
  std::optional<Hasher> hasher_;
};

Status PartFile::system_error(std::string_view step) const {
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
    return resource_exhausted("{}: {}: {}", path_.string(), step, std::strerror(errno));
  return unavailable("{}: {}: {}", path_.string(), step, std::strerror(errno));
}

Status PartFile::open() {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd_ < 0) return system_error("open");
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode))
    return invalid_argument("{}: is no regular file", path_.string());
  ASSIGN_OR_RETURN(hasher_, Hasher::create(file_.checksum.kind, file_.size));
  if (info.st_size > file_.size) return empty();
  std::vector<char> chunk(size_t{1} << 20);
  while (size_ < info.st_size) {
    if (shared_.is_cancelled || shared_.has_failed) return cancelled("stopped");
    const ssize_t got = ::read(fd_, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("read");
    if (got == 0) break;
    hasher_->update({chunk.data(), static_cast<size_t>(got)});
    size_ += got;
  }
  return ok();
}

Status PartFile::empty() {
  if (::ftruncate(fd_, 0) != 0) return system_error("truncate");
  if (::lseek(fd_, 0, SEEK_SET) < 0) return system_error("seek");
  bar_.add(-size_);
  size_ = 0;
  ASSIGN_OR_RETURN(hasher_, Hasher::create(file_.checksum.kind, file_.size));
  return ok();
}

bool PartFile::is_right() { return size_ == file_.size && hasher_->finish() == file_.checksum.hex; }

// A server that ignores the range sends the file from its beginning.
Status PartFile::begin(int status, std::optional<int64_t> from, std::optional<int64_t> length) {
  if (status == 200 && size_ > 0) RETURN_IF_ERROR(empty());
  if (from != size_)
    return invalid_argument("the hub sends bytes from {} on, not from {}; refused",
                            from.value_or(-1), size_);
  if (length && *length != file_.size - size_)
    return invalid_argument("the hub sends {} bytes, where {} of {} are missing; refused", *length,
                            file_.size - size_, file_.size);
  return ok();
}

Status PartFile::write(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > file_.size - size_)
    return invalid_argument("the hub sends more than the {} bytes that it named; refused",
                            file_.size);
  hasher_->update(bytes);
  size_ += static_cast<int64_t>(bytes.size());
  bar_.add(static_cast<int64_t>(bytes.size()));
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ok();
}

Attempt PartFile::attempt() {
  if (size_ == file_.size) return {ok()};
  const int64_t before = size_;
  Request request{.url = url_, .from = size_};
  request.on_begin = [this](int status, auto from, auto length) {
    return begin(status, from, length);
  };
  request.on_body = [this](std::string_view bytes) { return write(bytes); };
  const StatusOr<Reply> reply = client_.send(request);
  const bool has_progress = size_ - before >= kProgressBytes;
  if (!reply.ok()) {
    const bool may_repeat =
        absl::IsUnavailable(reply.status()) || absl::IsDeadlineExceeded(reply.status());
    return {absl::IsCancelled(reply.status()) ? reply.status() : annotate(reply.status(), what_),
            may_repeat,
            {},
            has_progress};
  }
  if (reply->status == 416) {
    if (const Status status = empty(); !status.ok()) return {status};
    return {unavailable("{}: the hub does not know the range", what_), true, {}, false};
  }
  Attempt judged = judge(*reply, shared_.settings, what_);
  judged.has_progress = has_progress;
  if (judged.status.ok() && size_ < file_.size)
    return {unavailable("{}: the hub sent {} of {} bytes", what_, size_, file_.size),
            true,
            {},
            has_progress};
  return judged;
}

Status PartFile::fetch() {
  return repeat(shared_, [this] { return attempt(); });
}

}  // namespace

int64_t bytes_there(const fs::path& folder, const RecordedFile& file) {
  std::error_code error;
  for (const char* ending : {"", kPartEnding}) {
    const fs::path path = folder / (file.name + ending);
    if (!fs::is_regular_file(fs::symlink_status(path, error))) continue;
    const auto size = static_cast<int64_t>(fs::file_size(path, error));
    if (!error && size <= file.size) return size;
  }
  return 0;
}

Status download(Client& client, Shared& shared, const ModelName& model, const std::string& commit,
                const RecordedFile& file, const fs::path& folder, ProgressBar& bar) {
  const fs::path path = folder / file.name;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return unavailable("{}: {}", path.parent_path().string(), error.message());
  if (fs::is_regular_file(fs::symlink_status(path, error)) &&
      static_cast<int64_t>(fs::file_size(path, error)) == file.size)
    return ok();  // it got its name when it was right
  const fs::path part = path.string() + kPartEnding;
  const std::string what = fmt::format("{}: file '{}'", model.id(), quoted_name(file.name));
  PartFile to(client, shared, bar, file,
              fmt::format("{}/{}/resolve/{}/{}", shared.settings.endpoint, url_path(model.id()),
                          commit, url_path(file.name)),
              what, part);
  RETURN_IF_ERROR(to.open());
  for (bool is_second = false;; is_second = true) {
    RETURN_IF_ERROR(to.fetch());
    if (to.is_right()) break;
    RETURN_IF_ERROR(to.empty());
    if (is_second)
      return data_loss("{}: the bytes have another {} than the hub named ({}); twice, so refused",
                       what, name_of(file.checksum.kind), file.checksum.hex);
    log_warn("{}: the checksum is wrong; downloading it again", what);
  }
  return rename_durably(part, path);
}

}  // namespace nereid::hub
