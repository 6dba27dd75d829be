// gzip and deflate bodies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/protection/byte_budget.h"

namespace nereid::front {

enum class Encoding { kIdentity, kGzip, kDeflate };

// The encoding of these three with the highest weight in Accept-Encoding; else kIdentity.
Encoding preferred_encoding(std::string_view accept);

// The result counts in `share` as it grows. InvalidArgument: broken data. ResourceExhausted: more
// than `max_bytes`, or no memory. Unavailable: the budget of `share` is full.
StatusOr<std::string> decompress(std::string_view data, Encoding encoding, size_t max_bytes,
                                 BudgetShare& share);

// Compresses a text that comes in parts; kIdentity copies it. `level`: zlib's, 1 (fast) to 9
// (small); -1: its default.
class Compressor {
 public:
  explicit Compressor(Encoding encoding, int level = -1);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  // The output after `part`; no part may follow the last one.
  std::string add(std::string_view part, bool is_last);

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: kIdentity
};
// Compresses a whole text, as Compressor.
std::string compress(std::string_view data, Encoding encoding, int level = -1);

}  // namespace nereid::front
