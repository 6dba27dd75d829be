// Locks on models for loads and unloads: those of unrelated models run in parallel, those of the
// same or dependent models one after the other.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "server/repository/model_id.h"

namespace nereid::server {

class ModelLocks {
 public:
  using Ids = std::set<ModelId>;

  // A lock on a set of models, held while this exists. The ModelLocks must outlive it.
  class ModelLock {
   public:
    ModelLock(ModelLock&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), ids_(std::move(other.ids_)) {}
    ModelLock& operator=(ModelLock&&) = delete;
    ~ModelLock();
    const Ids& ids() const { return ids_; }

   private:
    friend class ModelLocks;
    ModelLock(ModelLocks* claims, Ids ids) : locks_(claims), ids_(std::move(ids)) {}
    ModelLocks* locks_;
    Ids ids_;
  };

  // Locks all of `ids` at once, when none is locked: no thread waits while it holds a lock, so
  // there is no deadlock. Unavailable: closed.
  StatusOr<ModelLock> take(Ids ids);

  // Refuses new locks, also to threads that wait for one.
  void close();
  // Waits until nothing is locked and no thread waits; false at `deadline`.
  bool wait_until_free(Time deadline);
  bool any() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Ids claimed_;
  int num_users_ = 0;  // locks held, and threads in take()
  bool is_closed_ = false;
};

}  // namespace nereid::server
