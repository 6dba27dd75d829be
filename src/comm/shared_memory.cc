// Memory files: created, mapped, closed.
#include "comm/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nereid::comm {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

StatusOr<Descriptor> SharedMemory::create(size_t bytes) {
  Descriptor file(::memfd_create("nereid-ranks", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return resource_exhausted("{} bytes of shared memory: {}", bytes, std::strerror(errno));
  return file;
}

StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::map(const Descriptor& file) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return unavailable("shared memory of descriptor {}: {}", file.get(), std::strerror(errno));
  const auto bytes = static_cast<size_t>(info.st_size);
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED)
    return unavailable("mapping {} bytes of shared memory: {}", bytes, std::strerror(errno));
  return std::make_shared<SharedMemory>(data, bytes);
}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

}  // namespace nereid::comm
