#include "base/scratch_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/file.h"

namespace nereid {
namespace {

constexpr const char* kPrefix = "nereid-scratch-";
constexpr time_t kYoungSeconds = 10;  // a folder younger than this may not be locked yet
constexpr size_t kProbeBytes = size_t{64} << 10;

int open_locked(const std::filesystem::path& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

// Removes folders of this user whose processes have ended.
void remove_left_behind(const std::filesystem::path& parent) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(parent, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    const int fd = open_locked(it->path());
    if (fd < 0) continue;
    struct stat info = {};
    const bool is_ours = ::fstat(fd, &info) == 0 && info.st_uid == ::geteuid();
    std::error_code ignored;
    if (is_ours && info.st_mtime + kYoungSeconds < ::time(nullptr))
      std::filesystem::remove_all(it->path(), ignored);
    ::close(fd);
  }
}

// Writes a file: whether a disk has room is only found by writing.
Status probe(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "probe";
  RETURN_IF_ERROR(write_file_atomic(file, std::string(kProbeBytes, ' ')));
  std::error_code error;
  std::filesystem::remove(file, error);
  return ok();
}

std::vector<std::filesystem::path> candidates() {
  std::vector<std::filesystem::path> dirs = {"/tmp", "/dev/shm", "/var/tmp"};
  if (const char* dir = std::getenv("TMPDIR"); dir && *dir) dirs.insert(dirs.begin(), dir);
  return dirs;
}

}  // namespace

StatusOr<ScratchDir> ScratchDir::create() {
  std::string reasons;
  for (const std::filesystem::path& parent : candidates()) {
    remove_left_behind(parent);
    std::string name = (parent / fmt::format("{}XXXXXX", kPrefix)).string();
    const auto note = [&](std::string_view why) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", parent.string(), why);
    };
    if (!::mkdtemp(name.data())) {
      note(std::strerror(errno));
      continue;
    }
    ScratchDir out(name, open_locked(name));
    const Status written = probe(out.path());
    if (written.ok()) return out;
    note(message(written));
  }
  return unavailable("no place for a temporary folder ({}); set TMPDIR to one", reasons);
}

ScratchDir::~ScratchDir() {
  std::error_code error;
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace nereid
