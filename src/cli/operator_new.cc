// operator new on mimalloc, for every library of the program. mimalloc's own operator new, built as
// C, ends the process without memory; this one throws std::bad_alloc.
#include <mimalloc.h>

#include <new>

namespace {

void* checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t size) { return checked(mi_malloc(size)); }
void* operator new[](size_t size) { return checked(mi_malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return checked(mi_malloc_aligned(size, static_cast<size_t>(alignment)));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return checked(mi_malloc_aligned(size, static_cast<size_t>(alignment)));
}
