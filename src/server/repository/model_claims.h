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

  // Models that no other claim may include while this exists. The claims must outlive it.
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

  // All of `ids` at once, when none of them is claimed any more: no thread waits holding a claim,
  // so no thread waits for ever. Unavailable once closed.
  StatusOr<Claim> take(Ids ids);

  // No new claims; threads that wait for one are refused.
  void close();
  // Until nothing is claimed and no thread waits for a claim; false at `deadline`.
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
