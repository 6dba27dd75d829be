// An allocator for arrays of up to gigabytes: large ones are pages of their own, which go back to
// the system when they are freed, whatever the program's malloc keeps.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>

namespace nereid {

template <class T>
struct PageAllocator {
  using value_type = T;
  static constexpr size_t kLargeBytes = size_t{1} << 20;

  PageAllocator() = default;
  template <class U>
  PageAllocator(const PageAllocator<U>&) {}

  T* allocate(size_t count) {
    if (count < kLargeBytes / sizeof(T)) return std::allocator<T>().allocate(count);
    if (count > static_cast<size_t>(-1) / sizeof(T)) throw std::bad_alloc();
    void* const pages = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }
  void deallocate(T* memory, size_t count) {
    if (count < kLargeBytes / sizeof(T)) return std::allocator<T>().deallocate(memory, count);
    munmap(memory, count * sizeof(T));
  }
  bool operator==(const PageAllocator&) const { return true; }
};

}  // namespace nereid
