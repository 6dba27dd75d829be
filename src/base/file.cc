#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "base/durability.h"

namespace nereid {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

// O_NONBLOCK: opening a FIFO that has no writer would block.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

std::string reason(int error) { return std::strerror(error); }

// fsync() of a file or folder. For a folder, EACCES and EINVAL (file systems without fsync() of
// folders) are no errors.
Status sync_path(const std::filesystem::path& path, bool is_folder) {
  if (!flushes_files()) return ok();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (is_folder ? O_DIRECTORY : 0));
  if (fd < 0) {
    if (is_folder && errno == EACCES) return ok();
    return unavailable("{}: {}", path.string(), reason(errno));
  }
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error == 0 || (is_folder && error == EINVAL)) return ok();
  return unavailable("{}: {}", path.string(), reason(error));
}

Status sync_tree(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return sync_path(path, false);
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (!entry.is_symlink(error) && (entry.is_directory(error) || entry.is_regular_file(error)))
      RETURN_IF_ERROR(sync_tree(entry.path()));
  }
  if (error) return unavailable("{}: {}", path.string(), error.message());
  return sync_path(path, true);
}

}  // namespace

namespace {

// A Git LFS pointer file stands in a checkout for a large file that was not fetched: fewer than
// 1,024 bytes that begin with the version. Source: docs/spec.md of github.com/git-lfs/git-lfs.
bool is_lfs_pointer(int fd, off_t size) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
  constexpr off_t kLess = 1024;
  char begin[kBegin.size()];
  return size < kLess && ::pread(fd, begin, sizeof begin, 0) == ssize_t{sizeof begin} &&
         std::string_view(begin, sizeof begin) == kBegin;
}

}  // namespace

StatusOr<OpenFile> OpenFile::take(int fd, const std::filesystem::path& path) {
  if (fd < 0) {
    const int code = errno;
    if (code == ENOENT) return not_found("{}: {}", path.string(), reason(code));
    if (code == ENXIO)  // a socket, or a device without hardware
      return invalid_argument("{}: is not a regular file", path.string());
    return unavailable("{}: {}", path.string(), reason(code));
  }
  OpenFile file(fd, path);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return S_ISDIR(info.st_mode) ? invalid_argument("{}: is a directory", path.string())
                                 : invalid_argument("{}: is not a regular file", path.string());
  if (is_lfs_pointer(fd, info.st_size))
    return invalid_argument(
        "{}: is a Git LFS pointer, not the file itself; fetch it with `git lfs pull` in its "
        "folder, or the whole model with `hf download`",
        path.string());
  return file;
}

StatusOr<OpenFile> OpenFile::open(const std::filesystem::path& path) {
  return take(::open(path.c_str(), kReadFlags), path);
}

// Links are resolved first, then the result is opened with no link allowed in it: a link put in a
// folder's place meanwhile makes the open fail.
StatusOr<OpenFile> OpenFile::open_below(const std::filesystem::path& root,
                                        const std::filesystem::path& path) {
  std::error_code error;
  const auto top = std::filesystem::canonical(root, error);
  if (error) return not_found("{}: {}", root.string(), error.message());
  const auto target = std::filesystem::canonical(path, error);
  if (error == std::errc::no_such_file_or_directory)
    return not_found("{}: {}", path.string(), error.message());
  if (error) return invalid_argument("{}: {}", path.string(), error.message());
  const auto [end, rest] = std::mismatch(top.begin(), top.end(), target.begin(), target.end());
  if (end != top.end() || rest == target.end())
    return invalid_argument("{}: does not lie inside {}", path.string(), root.string());
  int fd = ::open(top.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (auto at = rest; fd >= 0 && at != target.end(); ++at) {
    const bool is_last = std::next(at) == target.end();
    const int flags = is_last ? kReadFlags : O_PATH | O_DIRECTORY | O_CLOEXEC;
    const int next = ::openat(fd, at->c_str(), flags | O_NOFOLLOW);
    const int code = errno;
    ::close(fd);
    errno = code;
    fd = next;
  }
  if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
    return invalid_argument("{}: changed while it was opened", path.string());
  return take(fd, path);
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

size_t OpenFile::size() const {
  struct stat info = {};
  return ::fstat(fd_, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

bool ReadFolder::has(std::string_view name) const {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path_ / name, error));
}

StatusOr<OpenFile> ReadFolder::open(std::string_view name) const {
  return root_.empty() ? OpenFile::open(path_ / name) : OpenFile::open_below(root_, path_ / name);
}

StatusOr<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(OpenFile file, OpenFile::open(path));
  return read_file(std::move(file), max_bytes);
}

StatusOr<std::string> read_file(OpenFile file, size_t max_bytes) {
  const std::string name = file.path().string();
  std::string out;
  std::vector<char> chunk(1 << 16);
  for (;;) {
    const ssize_t n = ::read(file.fd(), chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unavailable("{}: read error", name);
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes)
      return resource_exhausted("{}: larger than the limit of {} bytes", name, max_bytes);
    out.append(chunk.data(), static_cast<size_t>(n));
  }
}

Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to) {
  RETURN_IF_ERROR(sync_tree(from));
  if (::rename(from.c_str(), to.c_str()) != 0)
    return unavailable("{}: {}", to.string(), reason(errno));
  const std::filesystem::path folder = to.parent_path();
  return sync_path(folder.empty() ? "." : folder, true);
}

Status write_file_atomic(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) return unavailable("{}: {}", path.parent_path().string(), error.message());
  const std::string temporary = fmt::format("{}.tmp.{}", path.string(), ::getpid());
  File file(std::fopen(temporary.c_str(), "wb"));
  if (!file) return unavailable("{}: {}", temporary, reason(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool closed = std::fclose(file.release()) == 0;
  if (!written || !closed) {
    const int code = errno;
    std::filesystem::remove(temporary, error);
    return unavailable("{}: {}", temporary, reason(code));
  }
  const Status named = rename_durably(temporary, path);
  if (!named.ok()) std::filesystem::remove(temporary, error);
  return named;
}

std::filesystem::path cache_dir() {
  if (const char* dir = std::getenv("NEREID_CACHE_DIR"); dir && *dir) return dir;
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir && *dir)
    return std::filesystem::path(dir) / "nereid";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "nereid";
  return fmt::format("/tmp/nereid-{}", ::getuid());
}

}  // namespace nereid
