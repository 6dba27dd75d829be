// Rules as a network of states, a nondeterministic automaton with calls: rule r begins at
// starts[r], and an edge may call a rule.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

inline constexpr int32_t kMaxGrammarStates = 500'000;
inline constexpr int32_t kMaxGrammarEdges = 1'000'000;

struct ByteEdge {
  ByteRange bytes;
  int32_t to = 0;
};
// An edge without a byte: rule < 0 leads to `to` at once, else a call of `rule`, then `to`.
struct FreeEdge {
  int32_t rule = -1;
  int32_t to = 0;
};
struct NetworkState {
  absl::InlinedVector<ByteEdge, 2> bytes;
  absl::InlinedVector<FreeEdge, 2> free;
  bool ends = false;  // the rule's text may end here
  bool tail = false;  // only the end of the rule can follow
  // An equivalent state for the next like_bytes bytes: the same position in an earlier copy
  // of a repeated part.
  int32_t like = -1;  // -1: none
  int32_t like_bytes = 0;
};

struct Network {
  std::vector<NetworkState> states;
  std::vector<int32_t> starts;  // start state of each rule
  // Byte classes: bytes on exactly the same edges.
  std::array<uint8_t, 256> class_of{};
  std::array<uint8_t, 256> byte_of{};  // one byte of each class
  int32_t num_classes = 0;

  int64_t bytes() const;  // memory held
};

// InvalidArgument: an empty set of characters, left recursion, a limit above, or the work limit.
StatusOr<Network> make_network(const Rules& rules, WorkLimit& work);

}  // namespace nereid::text
