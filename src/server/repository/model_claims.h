// Who changes which models: loads and unloads of models that have nothing to do with each other go
// on side by side, those of the same or of dependent models one after the other.
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

  // Models that nobody else may claim while this lives. The claims must outlive it.
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

  // All of `ids` at once, when none of them is claimed any more: nobody waits holding a claim, so
  // nobody waits for ever. Unavailable once closed.
  StatusOr<Claim> take(Ids ids);

  // No new claims; whoever waits for one is refused.
  void close();
  // Until nothing is claimed and nobody waits for a claim; false at `deadline`.
  bool wait_until_free(Time deadline);
  bool any() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Ids claimed_;
  int num_users_ = 0;  // claims, and threads in take()
  bool is_closed_ = false;
};

}  // namespace nereid::server
