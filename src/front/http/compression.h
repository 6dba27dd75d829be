// gzip and deflate bodies.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "front/http/byte_budget.h"

namespace nereid::front {

enum class Encoding { kIdentity, kGzip, kDeflate };

// What Accept-Encoding weighs highest among the three; kIdentity for anything else.
Encoding preferred_encoding(std::string_view accept);

// What comes out counts in `share` as it is made. InvalidArgument: broken data. ResourceExhausted:
// more than `max_bytes` come out, or no memory. Unavailable: the budget of `share` is full.
StatusOr<std::string> decompress(std::string_view data, Encoding encoding, size_t max_bytes,
                                 BudgetShare& share);

// Compresses a text that comes in parts; kIdentity leaves it as it is. `level`: zlib's, 1 (fast) to
// 9 (small); -1: its default.
class Compressor {
 public:
  explicit Compressor(Encoding encoding, int level = -1);
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  // What there is to send after `part`; after the last one nothing more may come.
  std::string add(std::string_view part, bool is_last);

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: kIdentity
};
// The whole of a text at once, as Compressor.
std::string compress(std::string_view data, Encoding encoding, int level = -1);

}  // namespace nereid::front
