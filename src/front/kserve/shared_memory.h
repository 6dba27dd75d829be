// Named regions of POSIX shared memory that clients register and then use for tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/guarded_region.h"
#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/http/router.h"

namespace nereid::front {

class Extensions;

// The error (Unimplemented) when shared memory is switched off.
inline constexpr std::string_view kSharedMemoryIsOff =
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";

class SharedMemory {
 public:
  // Maps [offset, offset + byte_size) of the object `key`. AlreadyExists, or the object's error;
  // InvalidArgument for keys of Triton's python backend, which clients must not read.
  Status add(const std::string& name, const std::string& key, uint64_t offset, uint64_t byte_size);
  // Unknown names are no error. Internal, naming them: regions of requests without their last
  // reply, which stay.
  Status remove(const std::string& name);
  Status remove_all();

  // JSON array of one region or, with "", all. NotFound.
  StatusOr<std::string> status(const std::string& name) const;

  // `byte_size` bytes of a region from `offset`. NotFound; InvalidArgument outside of it, or when
  // its object was truncated.
  StatusOr<ExternalMemory> find(const std::string& name, uint64_t offset, uint64_t byte_size) const;

 private:
  struct Region {
    std::string key;
    uint64_t offset = 0, byte_size = 0;
    std::shared_ptr<GuardedRegion> memory;
    std::shared_ptr<void> uses;  // shared with requests
    bool is_in_use() const { return uses.use_count() > 1; }
  };
  mutable std::mutex mutex_;
  std::map<std::string, Region> regions_;
};

// The system and CUDA shared memory extensions; CUDA regions are refused. Without `is_allowed` all
// routes answer that it is off.
void add_shared_memory_routes(Router& router, std::shared_ptr<Extensions> extensions,
                              bool is_allowed);

}  // namespace nereid::front
