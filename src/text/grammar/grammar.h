// Constrained decoding: the texts of a schema, regular expression or grammar, and the tokens
// that continue one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "text/grammar/char_runs.h"
#include "text/grammar/network.h"
#include "text/grammar/state_sets.h"
#include "text/grammar/token_trie.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

enum class GrammarKind { kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 20;

// The budget of one call. If `waits` is false and the steps do not suffice, or another thread is
// using the grammar, the call ends with Unavailable and changes nothing, so that it can be repeated
// elsewhere or later; the state sets computed so far are kept.
struct StepBudget {
  static constexpr int64_t kMost = 32'000'000;  // for one token or mask: about a tenth of a second
  int64_t steps = kMost;                        // steps left, about 3 ns each
  bool waits = true;                            // may wait for other threads, and trim caches
};

// Bytes held by all grammars of the same account.
using GrammarMemory = std::atomic<int64_t>;

// A compiled grammar for one vocabulary. State sets and masks are cached, within bounds, for all
// its matchers; thread safe.
class Grammar {
 public:
  // `text` is the schema, expression, grammar or structural tag; empty for kJsonObject.
  // InvalidArgument names the fault with its place, or the limit exceeded.
  static StatusOr<Network> parse(GrammarKind kind, std::string_view text, WorkLimit& work);
  // `account` may be null.
  static std::shared_ptr<Grammar> of(Network network, std::shared_ptr<const TokenTrie> tokens,
                                     std::shared_ptr<GrammarMemory> account = nullptr);
  // parse() and of().
  static StatusOr<std::shared_ptr<Grammar>> compile(GrammarKind kind, std::string_view text,
                                                    std::shared_ptr<const TokenTrie> tokens);
  ~Grammar();

  const TokenTrie& tokens() const { return *tokens_; }
  // Whether some text begins with `bytes`.
  StatusOr<bool> begins(std::string_view bytes, StepBudget& effort);
  int64_t bytes();  // bytes held

 private:
  friend class Matcher;
  class Use;
  // The state set of a matcher. Copies of a matcher share it until they accept more bytes.
  struct Position {
    int32_t set = 0;
  };
  // Cached tokens of one state, in the outermost rule or with an unknown caller.
  struct Local {
    std::vector<int32_t> ids;    // tokens that continue the text, ascending, if few
    std::vector<uint32_t> mask;  // else as a bitmask
    std::vector<int32_t> exits;  // trie nodes at which the state's rule may end
  };

  Grammar(Network network, std::shared_ptr<const TokenTrie> tokens,
          std::shared_ptr<GrammarMemory> account);
  // The caller holds the mutex.
  int64_t kept_bytes() const;
  bool exceeds_cache_limit() const;
  void trim();
  void count_bytes();
  int32_t start();
  int32_t follow(int32_t set, std::string_view bytes);
  std::shared_ptr<Position> make_position(int32_t set);
  const Local& local(StateSets::Config config);
  template <class Visit>
  void walk(int32_t node, int32_t set, const Visit& visit);
  template <class Visit>
  bool walk_run(int32_t node, int32_t set, const Visit& visit);
  void make_mask(int32_t set, std::vector<uint32_t>& mask);
  int32_t only_byte(int32_t set);

  const Network network_;
  const std::shared_ptr<const TokenTrie> tokens_;
  const std::shared_ptr<GrammarMemory> account_;
  const int64_t network_bytes_;
  std::mutex mutex_;
  StateSets sets_;
  CharRuns runs_{sets_};
  int64_t counted_bytes_ = 0;  // bytes counted in account_
  int64_t needed_bytes_ = 0;   // bytes that trim() could not free
  int64_t local_bytes_ = 0;
  int32_t start_ = StateSets::kDead;  // a state set; kDead: not computed yet
  std::vector<std::weak_ptr<Position>> positions_;
  size_t most_positions_ = 64;  // size at which expired positions are removed
  // By state, and whether in the outermost rule.
  absl::flat_hash_map<std::pair<int32_t, bool>, Local> locals_;
  absl::flat_hash_map<int32_t, std::vector<uint32_t>> masks_;  // by state set
  absl::flat_hash_map<int32_t, int32_t> only_bytes_;           // by state set; see only_byte()
  std::vector<int32_t> path_;                                  // state sets by depth, for walk()
};

// The position in one text, from its start. Owned by one thread.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {}

  // Appends `bytes` to the text. InvalidArgument: no text of the grammar continues so, and nothing
  // has changed, or the grammar is too ambiguous. Unavailable: see StepBudget.
  Status accept(std::string_view bytes, StepBudget& effort);
  // Whether the text may end here.
  bool may_end();
  // Sets the bit of each token that may follow, of `end_ids` if the text may end, and no other: bit
  // id % 32 of mask[id / 32], for ids below 32 * mask.size(). Errors as above.
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids, StepBudget& effort);
  // The forced bytes, at most `most`: every text continues with them. Fewer if the
  // effort does not suffice.
  std::string forced(size_t most, StepBudget& effort);

  // accept() with the largest effort.
  Status accept(std::string_view bytes) {
    StepBudget whole;
    return accept(bytes, whole);
  }
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids) {
    StepBudget whole;
    return fill_mask(mask, end_ids, whole);
  }
  std::string forced(size_t most) {
    StepBudget whole;
    return forced(most, whole);
  }

 private:
  int32_t set() const;  // the caller holds the grammar's mutex

  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<Grammar::Position> position_;  // null: at the start
};

}  // namespace nereid::text
