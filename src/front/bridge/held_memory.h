// A share of the memory that the server counts for its clients.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "front/bridge/tensor.h"
#include "nereid/server.h"

namespace nereid::front {

// Counted until the destructor. Used by one thread at a time.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory() {
    for (const size_t bytes : parts_) NEREID_ServerReleaseMemory(bytes);
  }
  // Counts bytes before they are allocated. Unavailable: the budget is full, and
  // they are not counted.
  Status add(size_t bytes) {
    parts_.push_back(0);
    RETURN_IF_ERROR(take_error(NEREID_ServerHoldMemory(bytes)));
    parts_.back() = bytes;
    return ok();
  }

 private:
  std::vector<size_t> parts_;
};

}  // namespace nereid::front
