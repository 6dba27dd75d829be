// ResponseStore: one mutex, one condition variable; waiters check again after every change.
#include "runtime/outputs/response_store.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace nereid::runtime {

void ResponseStore::expect(RequestId id) {
  std::lock_guard lock(mutex_);
  NEREID_CHECK(!closed_);
  open_.emplace(id, std::vector<Response>());
}

void ResponseStore::put(Response response) {
  {
    std::lock_guard lock(mutex_);
    const auto found = open_.find(response.request_id);
    NEREID_CHECK(found != open_.end());
    ready_.insert(response.request_id);
    found->second.push_back(std::move(response));
    ++num_ready_;
  }
  changed_.notify_all();
}

void ResponseStore::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

// No value: a timeout beyond the clock's range.
ResponseStore::Deadline ResponseStore::deadline(Timeout timeout) {
  const Time start = now();
  if (!timeout || *timeout >= std::chrono::floor<std::chrono::milliseconds>(Time::max() - start))
    return std::nullopt;
  return start + *timeout;
}

template <class Ready>
void ResponseStore::wait(std::unique_lock<std::mutex>& lock, const Deadline& until, Ready ready) {
  if (until) {
    changed_.wait_until(lock, *until, ready);
  } else {
    changed_.wait(lock, ready);
  }
}

std::vector<Response> ResponseStore::await(Timeout timeout) {
  std::unique_lock lock(mutex_);
  wait(lock, deadline(timeout), [&] { return num_ready_ > 0 || (closed_ && open_.empty()); });
  std::vector<Response> all;
  all.reserve(static_cast<size_t>(num_ready_));
  while (!ready_.empty()) {
    auto some = take(*ready_.begin());
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<Response> ResponseStore::await(RequestId id, Timeout timeout) {
  return await_until(id, deadline(timeout));
}

std::vector<std::vector<Response>> ResponseStore::await(const std::vector<RequestId>& ids,
                                                        Timeout timeout) {
  const Deadline until = deadline(timeout);
  std::vector<std::vector<Response>> all;
  all.reserve(ids.size());
  for (const RequestId id : ids) all.push_back(await_until(id, until));
  return all;
}

std::vector<Response> ResponseStore::await_until(RequestId id, const Deadline& until) {
  std::unique_lock lock(mutex_);
  wait(lock, until, [&] { return ready_.contains(id) || !open_.contains(id); });
  if (open_.contains(id)) return take(id);
  Response error;
  error.request_id = id;
  error.is_final = error.is_sequence_final = true;
  error.status = invalid_argument(
      "request {}: nothing to await; its final response was delivered already, or it has a "
      "callback, or this id was never given out",
      id);
  return {std::move(error)};
}

// Takes all ready responses of a request; its id is removed with the final response.
std::vector<Response> ResponseStore::take(RequestId id) {
  const auto found = open_.find(id);
  std::vector<Response> taken = std::exchange(found->second, {});
  num_ready_ -= static_cast<int64_t>(taken.size());
  ready_.erase(id);
  if (!taken.empty() && taken.back().is_final) {
    open_.erase(found);
    // Other threads may wait for this id, or for the last response of all.
    changed_.notify_all();
  }
  return taken;
}

int64_t ResponseStore::num_ready(std::optional<RequestId> id) const {
  std::lock_guard lock(mutex_);
  if (!id) return num_ready_;
  const auto found = open_.find(*id);
  return found == open_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

}  // namespace nereid::runtime
