#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace nereid {

StatusOr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // no FIFO blocks it
  if (fd < 0) {
    const int code = errno;
    return code == ENOENT ? not_found("{}: {}", path.string(), std::strerror(code))
                          : unavailable("{}: {}", path.string(), std::strerror(code));
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return unavailable("{}: not a regular file", path.string());
  }
  MappedFile file;
  const auto size = static_cast<size_t>(info.st_size);
  if (size > 0) {
    auto region = GuardedRegion::map(fd, 0, size, GuardedRegion::Access::kRead);
    if (!region.ok()) {
      ::close(fd);
      return unavailable("{}: {}", path.string(), message(region.status()));
    }
    file.region_ = *std::move(region);
    file.bytes_ = {reinterpret_cast<const std::byte*>(file.region_->data()), size};
  }
  ::close(fd);
  return file;
}

void forget_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(mapped.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace nereid
