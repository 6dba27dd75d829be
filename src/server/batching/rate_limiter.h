// Rate limiter: how many instances of all models execute at a time, by their demands
// of named resources.
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

  // Capacities by (device, resource); a resource shared by all devices may be set for any device.
  // If any is set, resources not set have capacity 0. If none is set, each capacity is the largest
  // demand of a registered instance.
  using Key = std::pair<int, std::string>;
  using Capacities = std::map<Key, uint64_t>;

  explicit RateLimiter(Capacities set) : set_(std::move(set)) {}
  ~RateLimiter();
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  // A gate for one instance on `device`; the limiter must outlive it. InvalidArgument when a demand
  // exceeds a set capacity, or a name is used both as global and as a device's resource.
  StatusOr<std::unique_ptr<Gate>> add_instance(const RateLimits& limits, int device);

 private:
  class InstanceGate;
  friend class InstanceGate;
  using Demands = std::map<Key, uint64_t>;

  Status check(const Demands& demands) const;
  uint64_t set_capacity(const Key& key) const;
  uint64_t capacity(const Key& key) const;
  void admit();  // admits all waiting instances that may run, in order

  const Capacities set_;
  std::mutex mutex_;
  std::condition_variable admitted_;
  std::list<InstanceGate*> instances_, waiting_;  // waiting_: in order of arrival
  Demands used_;
};

}  // namespace nereid::server
