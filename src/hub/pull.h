// Models by name: from the cache, or from the hub into it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/status.h"
#include "hub/cache.h"
#include "hub/model_name.h"
#include "hub/settings.h"

namespace nereid::hub {

struct Pulled {
  CachedModel model;
  int64_t downloaded = 0;  // bytes that came from the hub now
  int64_t bytes = 0;       // of all its files; 0 for a model of the hub's own tools
};

// Brings the revision as the hub has it now. A pull that ends early leaves what it has, and the
// next one goes on from there. Without a network (settings.offline) the model must be complete.
// Errors: PermissionDenied (401, 403), NotFound, DataLoss (checksum), ResourceExhausted (disk),
// Unavailable and DeadlineExceeded (network), Cancelled, InvalidArgument (hostile answers).
StatusOr<Pulled> pull(const HubSettings& settings, const ModelName& model,
                      const std::atomic<bool>& is_cancelled);

// The complete model of the caches, without any request; else pull().
StatusOr<Pulled> find_or_pull(const HubSettings& settings, const ModelName& model,
                              const std::atomic<bool>& is_cancelled);

}  // namespace nereid::hub
