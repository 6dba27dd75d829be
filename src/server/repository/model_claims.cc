#include "server/repository/model_claims.h"

#include <algorithm>

namespace nereid::server {

StatusOr<ModelClaims::Claim> ModelClaims::take(Ids ids) {
  std::unique_lock lock(mutex_);
  const auto is_free = [&] {
    return std::none_of(ids.begin(), ids.end(),
                        [&](const ModelId& id) { return claimed_.contains(id); });
  };
  ++num_users_;
  changed_.wait(lock, [&] { return is_closed_ || is_free(); });
  if (is_closed_) {
    --num_users_;
    changed_.notify_all();
    return unavailable("Server exiting");
  }
  claimed_.insert(ids.begin(), ids.end());
  return Claim(this, std::move(ids));
}

ModelClaims::Claim::~Claim() {
  if (claims_ == nullptr) return;
  std::lock_guard lock(claims_->mutex_);
  for (const auto& id : ids_) claims_->claimed_.erase(id);
  --claims_->num_users_;
  claims_->changed_.notify_all();
}

void ModelClaims::close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

bool ModelClaims::wait_until_free(Time deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return num_users_ == 0; });
}

bool ModelClaims::any() const {
  std::lock_guard lock(mutex_);
  return num_users_ > 0;
}

}  // namespace nereid::server
