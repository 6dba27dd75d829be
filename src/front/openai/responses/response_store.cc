#include "front/openai/responses/response_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nereid::front {
namespace {

// Estimated bytes per response for list, map and string allocations.
constexpr size_t kOverhead = 256;

// Ids have no zero bytes, so keys of different owners differ.
std::string key_of(std::string_view owner, std::string_view id) {
  std::string key(id);
  key += '\0';
  key += owner;
  return key;
}

}  // namespace

void StoredResponses::put(std::string_view owner, std::string_view id, StoredResponse response) {
  Entry entry{key_of(owner, id), nullptr, 0};
  entry.bytes =
      kOverhead + entry.key.size() + response.object.capacity() + response.items.capacity();
  entry.response = std::make_shared<const StoredResponse>(std::move(response));
  std::lock_guard lock(mutex_);
  if (const auto old = by_key_.find(entry.key); old != by_key_.end()) remove(old->second);
  if (entry.bytes > std::min(max_bytes_, kMaxResponseBytes)) return;
  while (!entries_.empty() &&
         (bytes_ + entry.bytes > max_bytes_ || entries_.size() >= max_responses_))
    remove(std::prev(entries_.end()));
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_key_.emplace(entries_.front().key, entries_.begin());
}

StoredResponsePtr StoredResponses::get(std::string_view owner, std::string_view id) {
  const std::string key = key_of(owner, id);
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->response;
}

bool StoredResponses::erase(std::string_view owner, std::string_view id) {
  const std::string key = key_of(owner, id);
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return false;
  remove(found->second);
  return true;
}

size_t StoredResponses::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

void StoredResponses::remove(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

}  // namespace nereid::front
