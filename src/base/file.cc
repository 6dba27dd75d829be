#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace nereid {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string reason(int error) { return std::strerror(error); }

}  // namespace

StatusOr<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  // A FIFO without a writer would block for ever, were it not for O_NONBLOCK.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int code = errno;
    return code == ENOENT ? not_found("{}: {}", path.string(), reason(code))
                          : unavailable("{}: {}", path.string(), reason(code));
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return S_ISDIR(info.st_mode) ? invalid_argument("{}: is a directory", path.string())
                                 : invalid_argument("{}: is not a regular file", path.string());
  }
  File file(::fdopen(fd, "rb"));
  if (!file) {
    ::close(fd);
    return unavailable("{}: {}", path.string(), reason(errno));
  }
  std::string out;
  char chunk[1 << 16];
  while (size_t n = std::fread(chunk, 1, sizeof chunk, file.get())) {
    if (out.size() + n > max_bytes)
      return resource_exhausted("{}: larger than the limit of {} bytes", path.string(), max_bytes);
    out.append(chunk, n);
  }
  if (std::ferror(file.get())) return unavailable("{}: read error", path.string());
  return out;
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
  std::filesystem::rename(temporary, path, error);
  if (error) return unavailable("{}: {}", path.string(), error.message());
  return ok();
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
