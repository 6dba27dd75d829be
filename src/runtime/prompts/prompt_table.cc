// Digests of prompt table rows: SHA-256, because equal digests are taken for equal rows.
#include "runtime/prompts/prompt_table.h"
#include "base/copy_bytes.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

namespace nereid::runtime {
namespace {

// Hashes the extra id, then the row.
sched::InputKey digest(uint64_t extra_id, std::span<const uint16_t> row,
                       std::vector<unsigned char>& bytes) {
  bytes.resize(sizeof(extra_id) + row.size_bytes());
  std::memcpy(bytes.data(), &extra_id, sizeof(extra_id));
  copy_bytes(bytes.data() + sizeof(extra_id), row.data(), row.size_bytes());
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(bytes.data(), bytes.size(), hash.data());
  sched::InputKey key;
  static_assert(sizeof(key) <= sizeof(hash));
  std::memcpy(&key, hash.data(), sizeof(key));
  return key;
}

}  // namespace

std::vector<sched::InputKey> input_keys(const Request& request, int32_t vocab_size) {
  if (!request.prompt_table) return {};
  const PromptTable& table = *request.prompt_table;
  const auto width = static_cast<size_t>(table.width);
  std::vector<sched::InputKey> keys(request.input_token_ids.size());
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t extra_id = table.extra_ids.empty() ? 0 : table.extra_ids[i];
    const int64_t row = int64_t{request.input_token_ids[i]} - vocab_size;
    if (row < 0 && extra_id == 0) continue;
    const auto values =
        row < 0 ? std::span<const uint16_t>()
                : std::span(table.values).subspan(static_cast<size_t>(row) * width, width);
    keys[i] = digest(extra_id, values, bytes);
  }
  return keys;
}

int32_t put_in_front(const PromptTable& rows, int32_t vocab_size, Request& request) {
  const auto count = static_cast<int32_t>(std::ssize(rows.values) / rows.width);
  const auto move = [count](int32_t& place) {
    place = std::min(place, std::numeric_limits<int32_t>::max() - count) + count;
  };
  std::vector<TokenId>& ids = request.input_token_ids;
  for (TokenId& id : ids)
    if (id >= vocab_size) move(id);
  ids.insert(ids.begin(), static_cast<size_t>(count), 0);
  std::iota(ids.begin(), ids.begin() + count, vocab_size);
  PromptTable& table =
      request.prompt_table ? *request.prompt_table : request.prompt_table.emplace();
  table.width = rows.width;
  table.values.insert(table.values.begin(), rows.values.begin(), rows.values.end());
  if (!table.extra_ids.empty())
    table.extra_ids.insert(table.extra_ids.begin(), static_cast<size_t>(count), 0);
  for (Picture& picture : request.pictures) move(picture.first_token);
  if (request.sampling.prompt_ignore_length) move(*request.sampling.prompt_ignore_length);
  if (!request.kv_cache_retention) return count;
  for (auto& range : request.kv_cache_retention->token_ranges) {
    if (range.token_start > 0) move(range.token_start);
    if (range.token_end) move(*range.token_end);
  }
  return count;
}

}  // namespace nereid::runtime
