// A store of answers of /v1/responses for later requests: in memory, bounded, LRU.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace nereid::front {

struct StoredResponse {
  std::string object;  // JSON text of the response
  std::string items;   // JSON text of an array: the conversation before its output
};
using StoredResponsePtr = std::shared_ptr<const StoredResponse>;

// Any thread. An owner is an API key; owners do not see each other's responses.
class StoredResponses {
 public:
  static constexpr size_t kMaxResponses = 65536;
  static constexpr size_t kMaxResponseBytes = size_t{16} << 20;  // per response

  // 0 bytes: nothing is stored.
  explicit StoredResponses(size_t max_bytes, size_t max_responses = kMaxResponses)
      : max_bytes_(max_bytes), max_responses_(max_responses) {}

  bool is_on() const { return max_bytes_ > 0; }

  // Evicts others until it fits; one that is too large is dropped. Replaces one with the same id.
  void put(std::string_view owner, std::string_view id, StoredResponse response);
  // Null: not in the store. Counts as a use.
  StoredResponsePtr get(std::string_view owner, std::string_view id);
  bool erase(std::string_view owner, std::string_view id);

  size_t bytes() const;  // stored now

 private:
  struct Entry {
    std::string key;  // owner and id
    StoredResponsePtr response;
    size_t bytes = 0;
  };
  using Entries = std::list<Entry>;

  void remove(Entries::iterator entry);

  const size_t max_bytes_, max_responses_;
  mutable std::mutex mutex_;
  Entries entries_;  // most recently used first
  // Keys are views of the entries'.
  std::unordered_map<std::string_view, Entries::iterator> by_key_;
  size_t bytes_ = 0;
};

// The part of the store that one owner may access.
struct OwnerResponses {
  std::shared_ptr<StoredResponses> store;
  std::string owner;

  StoredResponsePtr get(std::string_view id) const { return store->get(owner, id); }
};

}  // namespace nereid::front
