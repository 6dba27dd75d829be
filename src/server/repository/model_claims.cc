#include "server/repository/model_claims.h"

#include <algorithm>

namespace nereid::server {

StatusOr<ModelLocks::ModelLock> ModelLocks::take(Ids ids) {
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
  return ModelLock(this, std::move(ids));
}

ModelLocks::ModelLock::~ModelLock() {
  if (locks_ == nullptr) return;
  std::lock_guard lock(locks_->mutex_);
  for (const auto& id : ids_) locks_->claimed_.erase(id);
  --locks_->num_users_;
  locks_->changed_.notify_all();
}

void ModelLocks::close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

bool ModelLocks::wait_until_free(Time deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return num_users_ == 0; });
}

bool ModelLocks::any() const {
  std::lock_guard lock(mutex_);
  return num_users_ > 0;
}

}  // namespace nereid::server
