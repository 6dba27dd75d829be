#include "base/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace nereid {

StatusOr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const OpenFile opened, OpenFile::open(path));
  return open(opened);
}

StatusOr<MappedFile> MappedFile::open(const OpenFile& opened) {
  MappedFile file;
  const size_t size = opened.size();
  if (size == 0) return file;
  auto region = GuardedRegion::map(opened.fd(), 0, size, GuardedRegion::Access::kRead);
  if (!region.ok()) return unavailable("{}: {}", opened.path().string(), message(region.status()));
  file.region_ = *std::move(region);
  file.bytes_ = {reinterpret_cast<const std::byte*>(file.region_->data()), size};
  return file;
}

void forget_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(mapped.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace nereid
