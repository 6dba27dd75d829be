// Rules as a network of states: what a matcher walks.
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
// To `to`: at once (rule < 0), or behind a text of `rule`.
struct FreeEdge {
  int32_t rule = -1;
  int32_t to = 0;
};
struct NetworkState {
  absl::InlinedVector<ByteEdge, 2> bytes;
  absl::InlinedVector<FreeEdge, 2> free;
  bool ends = false;  // the rule's text may end here
  bool tail = false;  // nothing but the end of the rule can follow
  // A state that goes on in the same ways for this many bytes: its place in an earlier copy of a
  // part that is repeated.
  int32_t like = -1;  // none
  int32_t like_bytes = 0;
};

struct Network {
  std::vector<NetworkState> states;
  std::vector<int32_t> starts;  // of each rule
  // Bytes that every edge treats alike have the same class.
  std::array<uint8_t, 256> class_of{};
  std::array<uint8_t, 256> byte_of{};  // one of each class
  int32_t num_classes = 0;

  int64_t bytes() const;  // that it holds
};

// InvalidArgument: a set of characters is empty, a rule begins with itself, a limit above is
// exceeded, or there is no work left.
StatusOr<Network> make_network(const Rules& rules, WorkLimit& work);

}  // namespace nereid::text
