// Scratch memory of a launcher, kept per thread between calls.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/round_up.h"
#include "base/status.h"

namespace nereid::kernels::cpu {

class Scratch {
 public:
  // At least `bytes` bytes, cache line aligned, uninitialised; valid until the next call.
  StatusOr<void*> get(size_t bytes) {
    if (bytes <= size_) return data_.get();
    constexpr size_t kUnit = size_t{1} << 12;
    const size_t wanted = round_up(bytes + bytes / 4, kUnit);
    data_.reset();
    size_ = 0;
    data_.reset(std::aligned_alloc(kUnit, wanted));
    if (!data_) return resource_exhausted("cpu: no memory for {} bytes of scratch", wanted);
    size_ = wanted;
    return data_.get();
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  size_t size_ = 0;
};

}  // namespace nereid::kernels::cpu
