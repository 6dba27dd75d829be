// Memory that is taken for a client, in what the server holds for all of them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "front/bridge/tensor.h"
#include "nereid/server.h"

namespace nereid::front {

// Counts until this goes. Used by one thread at a time.
class HeldMemory {
 public:
  HeldMemory() = default;
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory() {
    for (const size_t bytes : parts_) NEREID_ServerReleaseMemory(bytes);
  }
  // Before so many more bytes are allocated. Unavailable: there is no room, and they do not count.
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
