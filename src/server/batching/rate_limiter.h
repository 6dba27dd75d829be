// Limits how many instances execute at a time by what they need of named resources, across models.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "server/batching/batcher.h"
#include "server/config/model_config.h"

namespace nereid::server {

class RateLimiter {
 public:
  static constexpr int kEveryDevice = -1, kGlobal = -2;

  // Set capacities: by (device, resource); those of a resource that all devices share may be set
  // for any device. Where some are set, there is nothing of the others. Where none is, all are as
  // large as the largest demand of any registered instance.
  using Key = std::pair<int, std::string>;
  using Capacities = std::map<Key, uint64_t>;

  explicit RateLimiter(Capacities set) : set_(std::move(set)) {}
  ~RateLimiter();
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  // A gate for one instance on `device`; the limiter must outlive it. InvalidArgument when a set
  // capacity is below the demand, or a name is used both as global and as a device's resource.
  StatusOr<std::unique_ptr<Gate>> add_instance(const RateLimits& limits, int device);

 private:
  class InstanceGate;
  friend class InstanceGate;
  using Demands = std::map<Key, uint64_t>;

  Status check(const Demands& demands) const;
  uint64_t set_capacity(const Key& key) const;
  uint64_t capacity(const Key& key) const;
  void admit();  // admits all that may run, in order

  const Capacities set_;
  std::mutex mutex_;
  std::condition_variable admitted_;
  std::list<InstanceGate*> instances_, waiting_;  // waiting: in the order of arrival
  Demands used_;
};

}  // namespace nereid::server
