// One channel of samples from a file's rate to kSampleRate, block by block. Internal to this folder
// of the room.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/page_allocator.h"
#include "base/status.h"

struct soxr;

namespace nereid::speech {

// Hours of samples leave no memory behind.
using Samples = std::vector<float, PageAllocator<float>>;

class Resampler {
 public:
  // At kSampleRate samples pass unchanged. Internal: the library failed.
  static StatusOr<Resampler> create(int rate);

  // Appends to `out` what `in` completes; output is delayed by the filter's length.
  Status push(std::span<const float> in, Samples& out);
  // Appends the rest.
  Status finish(Samples& out);
  // Most samples that a block of `count` adds at once.
  size_t most_added(size_t count) const;

 private:
  struct Delete {
    void operator()(soxr* resampler) const;
  };
  explicit Resampler(int rate) : rate_(rate) {}
  Status run(const float* in, size_t count, Samples& out);

  int rate_;
  std::unique_ptr<soxr, Delete> soxr_;  // null: nothing to do
};

}  // namespace nereid::speech
