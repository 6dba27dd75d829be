// Thompson's construction; calls of rules are edges.
#include "text/grammar/network.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr int64_t kMostLikeBytes = 1 << 30;

// Least bytes of a text of the expression; called rules count 0.
int32_t least_bytes(const Expr& expr) {
  constexpr int64_t kMost = std::numeric_limits<uint16_t>::max();
  int64_t bytes = 0;
  switch (expr.kind) {
    case Expr::Kind::kBytes:
      bytes = static_cast<int64_t>(expr.bytes.size());
      break;
    case Expr::Kind::kChars:
      bytes = 1;
      break;
    case Expr::Kind::kSequence:
      for (const ExprPtr& part : expr.parts) bytes += least_bytes(*part);
      break;
    case Expr::Kind::kChoice:
      bytes = expr.parts.empty() ? 0 : kMost;
      for (const ExprPtr& part : expr.parts) bytes = std::min<int64_t>(bytes, least_bytes(*part));
      break;
    case Expr::Kind::kRepeat:
      bytes = int64_t{expr.least} * least_bytes(*expr.parts[0]);
      break;
    case Expr::Kind::kRule:
    case Expr::Kind::kAssertion:
      break;
  }
  return static_cast<int32_t>(std::min(bytes, kMost));
}

// Appends the only text of an expression to `text`; false, with a part appended, if it has several.
bool add_only_text(const Expr& expr, std::string& text) {
  if (expr.kind == Expr::Kind::kBytes) {
    text += expr.bytes;
    return true;
  }
  if (expr.kind == Expr::Kind::kChars && expr.chars.ranges().size() == 1) {
    const auto& [first, last] = expr.chars.ranges()[0];
    if (first == last) append_utf8(text, first);
    return first == last;
  }
  return expr.kind == Expr::Kind::kSequence &&
         std::ranges::all_of(expr.parts,
                             [&](const ExprPtr& part) { return add_only_text(*part, text); });
}

// About the number of edges that an expression without calls needs.
int64_t num_edges(const Expr& expr) {
  constexpr int64_t kWideEdges = 4;  // for a range of non-ASCII characters
  int64_t count = 0;
  for (const auto& [first, last] : expr.chars.ranges()) count += last < 0x80 ? 1 : kWideEdges;
  for (const ExprPtr& part : expr.parts) count += num_edges(*part);
  const int32_t copies = expr.most == kUnbounded ? expr.least + 1 : expr.most;
  return expr.kind == Expr::Kind::kBytes    ? static_cast<int64_t>(expr.bytes.size())
         : expr.kind == Expr::Kind::kRepeat ? copies * (count + 1)
                                            : count;
}

class NetworkMaker {
 public:
  explicit NetworkMaker(WorkLimit& work) : work_(work) {}
  // Gives shareable expressions rules of their own, behind all others, where their copies
  // would need many edges.
  Status find_shared(const Rules& rules);
  Status add_rule(const Expr& expr);
  Status add_shared_rules();
  Status finish();
  Network take() { return std::move(network_); }

 private:
  StatusOr<int32_t> add_state();
  Status count_edge();
  Status add_free(int32_t from, int32_t rule, int32_t to);
  Status add_byte(int32_t from, ByteRange bytes, int32_t to);
  Status add(const Expr& expr, int32_t from, int32_t to);
  Status add_bytes(std::string_view bytes, int32_t from, int32_t to);
  Status add_chars(const CharSet& chars, int32_t from, int32_t to);
  Status add_sequence(const std::vector<ExprPtr>& parts, int32_t from, int32_t to);
  Status add_choice(const std::vector<ExprPtr>& parts, int32_t from, int32_t to);
  Status add_texts(std::vector<std::string> texts, int32_t from, int32_t to);
  Status add_repeat(const Expr& expr, int32_t from, int32_t to);
  StatusOr<int32_t> add_copies(const Expr& part, int32_t count, int32_t from, int32_t exit);
  void find_tails();
  void find_classes();
  StatusOr<std::vector<bool>> nullable_rules();
  Status check_left_recursion();
  // Calls visit(edge) for each call that can come before any byte from `start` on; false when the
  // rule's text cannot be empty.
  template <class Visit>
  StatusOr<bool> walk_free(int32_t start, const std::vector<bool>& nullable, const Visit& visit);

  void count_uses(const Expr& expr, int64_t copies);

  WorkLimit& work_;
  Network network_;
  int32_t num_edges_ = 0;
  absl::flat_hash_map<const Expr*, int64_t> num_uses_;  // uses of each shareable expression
  int64_t num_counted_ = 0;
  absl::flat_hash_map<const Expr*, int32_t> rule_of_;  // rules of shared expressions
  std::vector<const Expr*> shared_;                    // in the order of their rules
};

StatusOr<int32_t> NetworkMaker::add_state() {
  if (network_.states.size() >= kMaxGrammarStates)
    return invalid_argument("the grammar needs more than {} states", kMaxGrammarStates);
  RETURN_IF_ERROR(work_.spend(1));
  network_.states.emplace_back();
  return static_cast<int32_t>(network_.states.size()) - 1;
}

Status NetworkMaker::count_edge() {
  if (++num_edges_ <= kMaxGrammarEdges) return work_.spend(1);
  return invalid_argument("the grammar needs more than {} edges", kMaxGrammarEdges);
}

Status NetworkMaker::add_free(int32_t from, int32_t rule, int32_t to) {
  network_.states[static_cast<size_t>(from)].free.push_back({rule, to});
  return count_edge();
}

Status NetworkMaker::add_byte(int32_t from, ByteRange bytes, int32_t to) {
  network_.states[static_cast<size_t>(from)].bytes.push_back({bytes, to});
  return count_edge();
}

void NetworkMaker::count_uses(const Expr& expr, int64_t copies) {
  constexpr int64_t kMostCopies = int64_t{1} << 20;
  ++num_counted_;
  if (expr.may_share) {
    const auto [found, is_new] = num_uses_.try_emplace(&expr, 0);
    if (is_new) shared_.push_back(&expr);
    found->second += copies;
    return;
  }
  if (expr.kind == Expr::Kind::kRepeat)
    copies *= std::max(1, expr.most == kUnbounded ? expr.least + 1 : expr.most);
  for (const ExprPtr& part : expr.parts) count_uses(*part, std::min(copies, kMostCopies));
}

Status NetworkMaker::find_shared(const Rules& rules) {
  constexpr int64_t kManyEdges = 10'000;
  for (const ExprPtr& rule : rules) {
    count_uses(*rule, 1);
    RETURN_IF_ERROR(work_.spend(std::exchange(num_counted_, 0) / 2));
  }
  std::erase_if(shared_, [&](const Expr* expr) {
    const int64_t uses = num_uses_[expr];
    return uses < 2 || uses * num_edges(*expr) < kManyEdges;
  });
  for (size_t i = 0; i < shared_.size(); ++i)
    rule_of_[shared_[i]] = static_cast<int32_t>(rules.size() + i);
  return ok();
}

Status NetworkMaker::add_shared_rules() {
  for (const Expr* expr : std::exchange(shared_, {})) {
    rule_of_.erase(expr);  // its own rule gets its edges
    RETURN_IF_ERROR(add_rule(*expr));
  }
  return ok();
}

Status NetworkMaker::add(const Expr& expr, int32_t from, int32_t to) {
  if (expr.may_share)
    if (const auto shared = rule_of_.find(&expr); shared != rule_of_.end())
      return add_free(from, shared->second, to);
  switch (expr.kind) {
    case Expr::Kind::kBytes:
      return add_bytes(expr.bytes, from, to);
    case Expr::Kind::kChars:
      return add_chars(expr.chars, from, to);
    case Expr::Kind::kSequence:
      return add_sequence(expr.parts, from, to);
    case Expr::Kind::kChoice:
      return add_choice(expr.parts, from, to);
    case Expr::Kind::kRepeat:
      return add_repeat(expr, from, to);
    case Expr::Kind::kRule:
      return add_free(from, expr.rule, to);
    case Expr::Kind::kAssertion:
      break;
  }
  return internal_error("an expression of kind {}", static_cast<int>(expr.kind));
}

Status NetworkMaker::add_bytes(std::string_view bytes, int32_t from, int32_t to) {
  if (bytes.empty()) return add_free(from, -1, to);
  for (size_t i = 0; i < bytes.size(); ++i) {
    int32_t next = to;
    if (i + 1 < bytes.size()) {
      ASSIGN_OR_RETURN(next, add_state());
    }
    const auto byte = static_cast<uint8_t>(bytes[i]);
    RETURN_IF_ERROR(add_byte(from, {byte, byte}, next));
    from = next;
  }
  return ok();
}

// Alternatives that are single texts become one prefix tree, so that few states are open at a time.
Status NetworkMaker::add_choice(const std::vector<ExprPtr>& parts, int32_t from, int32_t to) {
  std::vector<std::string> texts;
  for (const ExprPtr& part : parts) {
    if (std::string text; add_only_text(*part, text) && !text.empty())
      texts.push_back(std::move(text));
    else
      RETURN_IF_ERROR(add(*part, from, to));
  }
  return texts.empty() ? ok() : add_texts(std::move(texts), from, to);
}

Status NetworkMaker::add_texts(std::vector<std::string> texts, int32_t from, int32_t to) {
  constexpr int64_t kTextSteps = 10;  // to sort one
  RETURN_IF_ERROR(work_.spend(kTextSteps * static_cast<int64_t>(texts.size())));
  std::ranges::sort(texts);
  std::vector<int32_t> path = {from};  // states along the bytes of the last text
  std::string_view last;
  for (const std::string& text : texts) {
    const auto same = static_cast<size_t>(std::ranges::mismatch(text, last).in1 - text.begin());
    if (same == text.size()) continue;  // a duplicate
    // The last state of the path is `to`, which no text extends.
    path.resize(std::min(same + 1, path.size()));
    for (size_t i = path.size() - 1; i + 1 < text.size(); ++i) {
      ASSIGN_OR_RETURN(const int32_t next, add_state());
      const auto byte = static_cast<uint8_t>(text[i]);
      RETURN_IF_ERROR(add_byte(path.back(), {byte, byte}, next));
      path.push_back(next);
    }
    const auto byte = static_cast<uint8_t>(text.back());
    RETURN_IF_ERROR(add_byte(path.back(), {byte, byte}, to));
    last = text;
  }
  return ok();
}

Status NetworkMaker::add_chars(const CharSet& chars, int32_t from, int32_t to) {
  if (chars.empty()) return invalid_argument("a set of characters is empty");
  // States by the bytes that lead from them to `to`.
  std::map<std::vector<ByteRange>, int32_t> behind;
  Status status;
  const auto add_one = [&](const std::vector<ByteRange>& bytes) -> Status {
    int32_t next = to;
    for (size_t i = bytes.size() - 1; i > 0; --i) {
      const auto [at, is_new] = behind.try_emplace(
          std::vector<ByteRange>(bytes.begin() + static_cast<ptrdiff_t>(i), bytes.end()));
      if (is_new) {
        ASSIGN_OR_RETURN(at->second, add_state());
        RETURN_IF_ERROR(add_byte(at->second, bytes[i], next));
      }
      next = at->second;
    }
    return add_byte(from, bytes[0], next);
  };
  for (const auto& [first, last] : chars.ranges())
    utf8_ranges(first, last, [&](const std::vector<ByteRange>& bytes) {
      if (status.ok()) status = add_one(bytes);
    });
  return status;
}

Status NetworkMaker::add_sequence(const std::vector<ExprPtr>& parts, int32_t from, int32_t to) {
  if (parts.empty()) return add_free(from, -1, to);
  for (size_t i = 0; i < parts.size(); ++i) {
    int32_t next = to;
    if (i + 1 < parts.size()) {
      ASSIGN_OR_RETURN(next, add_state());
    }
    RETURN_IF_ERROR(add(*parts[i], from, next));
    from = next;
  }
  return ok();
}

// Appends copies of a part; `exit` >= 0: each copy may be skipped to it. Returns the last state.
// All copies have equally many states, in the same order.
StatusOr<int32_t> NetworkMaker::add_copies(const Expr& part, int32_t count, int32_t from,
                                           int32_t exit) {
  std::vector<NetworkState>& states = network_.states;
  const size_t first = states.size();
  for (int32_t i = 0; i < count; ++i) {
    if (exit >= 0) RETURN_IF_ERROR(add_free(from, -1, exit));
    ASSIGN_OR_RETURN(const int32_t next, add_state());
    RETURN_IF_ERROR(add(part, from, next));
    from = next;
  }
  // Copies differ in the distance to the text behind the last.
  const int64_t part_bytes = count < 2 ? 0 : least_bytes(part);
  if (part_bytes == 0) return from;
  const size_t size = (states.size() - first) / static_cast<size_t>(count);
  for (size_t i = first + size; i < states.size(); ++i) {
    const auto copy = static_cast<int64_t>((i - first) / size);
    const int64_t bytes = (count - 1 - copy) * part_bytes - 1;
    if (bytes <= states[i].like_bytes) continue;
    states[i].like = static_cast<int32_t>(first + (i - first) % size);
    states[i].like_bytes = static_cast<int32_t>(std::min(bytes, kMostLikeBytes));
  }
  return from;
}

Status NetworkMaker::add_repeat(const Expr& expr, int32_t from, int32_t to) {
  const Expr& part = *expr.parts[0];
  ASSIGN_OR_RETURN(from, add_copies(part, expr.least, from, -1));
  if (expr.most == kUnbounded) {
    ASSIGN_OR_RETURN(const int32_t loop, add_state());
    RETURN_IF_ERROR(add_free(from, -1, loop));
    RETURN_IF_ERROR(add(part, loop, loop));
    return add_free(loop, -1, to);
  }
  ASSIGN_OR_RETURN(from, add_copies(part, expr.most - expr.least, from, to));
  return add_free(from, -1, to);
}

Status NetworkMaker::add_rule(const Expr& expr) {
  ASSIGN_OR_RETURN(const int32_t start, add_state());
  ASSIGN_OR_RETURN(const int32_t end, add_state());
  network_.starts.push_back(start);
  network_.states[static_cast<size_t>(end)].ends = true;
  return add(expr, start, end);
}

template <class Visit>
StatusOr<bool> NetworkMaker::walk_free(int32_t start, const std::vector<bool>& nullable,
                                       const Visit& visit) {
  std::vector<int32_t> open = {start};
  absl::flat_hash_set<int32_t> seen = {start};
  bool empty = false;
  while (!open.empty()) {
    const NetworkState& state = network_.states[static_cast<size_t>(open.back())];
    open.pop_back();
    empty |= state.ends;
    RETURN_IF_ERROR(work_.spend(1 + static_cast<int64_t>(state.free.size())));
    for (const FreeEdge& edge : state.free) {
      if (edge.rule >= 0) visit(edge.rule);
      if (edge.rule >= 0 && !nullable[static_cast<size_t>(edge.rule)]) continue;
      if (seen.insert(edge.to).second) open.push_back(edge.to);
    }
  }
  return empty;
}

StatusOr<std::vector<bool>> NetworkMaker::nullable_rules() {
  std::vector<bool> nullable(network_.starts.size());
  for (bool grows = true; grows;) {
    grows = false;
    for (size_t r = nullable.size(); r-- > 0;) {
      if (nullable[r]) continue;
      ASSIGN_OR_RETURN(const bool empty, walk_free(network_.starts[r], nullable, [](int32_t) {}));
      if (empty) nullable[r] = grows = true;
    }
  }
  return nullable;
}

// A cycle of calls before any byte is left recursion.
Status NetworkMaker::check_left_recursion() {
  ASSIGN_OR_RETURN(const std::vector<bool> nullable, nullable_rules());
  const size_t count = network_.starts.size();
  std::vector<std::vector<int32_t>> calls(count);
  std::vector<int32_t> num_callers(count);
  for (size_t r = 0; r < count; ++r) {
    RETURN_IF_ERROR(walk_free(network_.starts[r], nullable, [&](int32_t rule) {
                      calls[r].push_back(rule);
                    }).status());
    for (const int32_t rule : calls[r]) ++num_callers[static_cast<size_t>(rule)];
  }
  std::vector<size_t> open;
  for (size_t r = 0; r < count; ++r)
    if (num_callers[r] == 0) open.push_back(r);
  size_t num_done = 0;
  for (; !open.empty(); ++num_done) {
    const size_t r = open.back();
    open.pop_back();
    for (const int32_t rule : calls[r])
      if (--num_callers[static_cast<size_t>(rule)] == 0) open.push_back(static_cast<size_t>(rule));
  }
  if (num_done == count) return ok();
  return invalid_argument(
      "a rule or schema begins with itself (left recursion), which is not supported");
}

// A state is a tail when its free edges lead to tails only; end states are tails.
void NetworkMaker::find_tails() {
  for (size_t i = network_.states.size(); i-- > 0;) {
    // Follows single free edges; a cycle of them is longer than this.
    constexpr int kMostSteps = 8;
    const NetworkState* state = &network_.states[i];
    for (int step = 0; step < kMostSteps && !state->ends; ++step) {
      if (!state->bytes.empty() || state->free.size() != 1 || state->free[0].rule >= 0) break;
      state = &network_.states[static_cast<size_t>(state->free[0].to)];
    }
    network_.states[i].tail = state->ends && state->bytes.empty() && state->free.empty();
  }
}

void NetworkMaker::find_classes() {
  std::array<bool, 257> begins{};
  for (const NetworkState& state : network_.states)
    for (const ByteEdge& edge : state.bytes)
      begins[edge.bytes.first] = begins[size_t{edge.bytes.last} + 1] = true;
  int32_t last = 0;
  network_.byte_of[0] = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte])
      network_.byte_of[static_cast<size_t>(++last)] = static_cast<uint8_t>(byte);
    network_.class_of[byte] = static_cast<uint8_t>(last);
  }
  network_.num_classes = last + 1;
}

Status NetworkMaker::finish() {
  RETURN_IF_ERROR(check_left_recursion());
  find_tails();
  find_classes();
  return ok();
}

}  // namespace

int64_t Network::bytes() const {
  const auto extra = [](const auto& edges, int64_t size) {
    constexpr size_t kInline = 2;
    return edges.capacity() > kInline ? static_cast<int64_t>(edges.capacity()) * size : 0;
  };
  auto bytes = static_cast<int64_t>(states.capacity() * sizeof(NetworkState));
  for (const NetworkState& state : states)
    bytes += extra(state.bytes, sizeof(ByteEdge)) + extra(state.free, sizeof(FreeEdge));
  return bytes;
}

StatusOr<Network> make_network(const Rules& rules, WorkLimit& work) {
  NetworkMaker maker(work);
  RETURN_IF_ERROR(maker.find_shared(rules));
  for (const ExprPtr& rule : rules) RETURN_IF_ERROR(maker.add_rule(*rule));
  RETURN_IF_ERROR(maker.add_shared_rules());
  RETURN_IF_ERROR(maker.finish());
  return maker.take();
}

}  // namespace nereid::text
