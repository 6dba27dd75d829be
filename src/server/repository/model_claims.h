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

class ModelClaims {
 public:
  using Ids = std::set<ModelId>;

  // A lock on a set of models, held while this exists. The ModelClaims must outlive it.
  class Claim {
   public:
    Claim(Claim&& other) noexcept
        : claims_(std::exchange(other.claims_, nullptr)), ids_(std::move(other.ids_)) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim();
    const Ids& ids() const { return ids_; }

   private:
    friend class ModelClaims;
    Claim(ModelClaims* claims, Ids ids) : claims_(claims), ids_(std::move(ids)) {}
    ModelClaims* claims_;
    Ids ids_;
  };

  // Locks all of `ids` at once, when none is locked: no thread waits while it holds a lock, so
  // there is no deadlock. Unavailable: closed.
  StatusOr<Claim> take(Ids ids);

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
