// Texts that a schema, regular expression or grammar allows, and the tokens that continue one.
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

// What one call may take of its thread. Where `waits` is false and the steps do not suffice, or
// another thread is using the grammar, the call ends with Unavailable and changes nothing, so that
// it can be made again, elsewhere or later; steps that were taken are not taken again.
struct Effort {
  static constexpr int64_t kMost = 32'000'000;  // for one token or mask: about a tenth of a second
  int64_t steps = kMost;                        // that are left, of about 3 ns
  bool waits = true;                            // for other threads; may clean up what is kept
};

// Bytes that all grammars with the same account hold.
using GrammarAccount = std::atomic<int64_t>;

// A compiled grammar for one vocabulary. What it learns of its states is kept, within bounds, for
// all its matchers; safe from many threads at once.
class Grammar {
 public:
  // `text` is the schema, expression, grammar or structural tag; none for kJsonObject.
  // InvalidArgument says what is wrong, with its place, or which limit is exceeded.
  static StatusOr<Network> parse(GrammarKind kind, std::string_view text, WorkLimit& work);
  // `account` may be null.
  static std::shared_ptr<Grammar> of(Network network, std::shared_ptr<const TokenTrie> tokens,
                                     std::shared_ptr<GrammarAccount> account = nullptr);
  // Both.
  static StatusOr<std::shared_ptr<Grammar>> compile(GrammarKind kind, std::string_view text,
                                                    std::shared_ptr<const TokenTrie> tokens);
  ~Grammar();

  const TokenTrie& tokens() const { return *tokens_; }
  // Whether a text begins with these bytes.
  StatusOr<bool> begins(std::string_view bytes, Effort& effort);
  int64_t bytes();  // that it holds

 private:
  friend class Matcher;
  class Use;
  // Where a text stands. Matchers that were copied share one until they go on.
  struct Position {
    int32_t set = 0;
  };
  // Of a state in the outermost rule, or in calls that are not known.
  struct Local {
    std::vector<int32_t> ids;    // tokens that continue the text, ascending, if they are few
    std::vector<uint32_t> mask;  // else as bits
    std::vector<int32_t> exits;  // nodes of the trie at which the state's rule may end
  };

  Grammar(Network network, std::shared_ptr<const TokenTrie> tokens,
          std::shared_ptr<GrammarAccount> account);
  // The caller holds the mutex.
  int64_t kept_bytes() const;
  bool keeps_too_much() const;
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
  const std::shared_ptr<GrammarAccount> account_;
  const int64_t network_bytes_;
  std::mutex mutex_;
  StateSets sets_;
  CharRuns runs_{sets_};
  int64_t counted_bytes_ = 0;  // in account_
  int64_t needed_bytes_ = 0;   // of what trim() could not forget
  int64_t local_bytes_ = 0;
  int32_t start_ = StateSets::kDead;  // the set; kDead: not known yet
  std::vector<std::weak_ptr<Position>> positions_;
  size_t most_positions_ = 64;                                   // before those that ended go
  absl::flat_hash_map<std::pair<int32_t, bool>, Local> locals_;  // by state; whether outermost
  absl::flat_hash_map<int32_t, std::vector<uint32_t>> masks_;    // by set
  absl::flat_hash_map<int32_t, int32_t> only_bytes_;             // by set: see only_byte()
  std::vector<int32_t> path_;                                    // of walk(): sets by depth
};

// One text, from its start. Owned by one thread.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Grammar> grammar) : grammar_(std::move(grammar)) {}

  // The text goes on with `bytes`. InvalidArgument: no text of the grammar does, and nothing has
  // changed, or the grammar is too ambiguous. Unavailable: see Effort.
  Status accept(std::string_view bytes, Effort& effort);
  // Whether the text may end here.
  bool may_end();
  // Sets the bit of each token that may follow, of `end_ids` if the text may end, and no other:
  // bit id % 32 of mask[id / 32], for ids below 32 * mask.size(). Errors as above.
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids, Effort& effort);
  // The bytes that must come next, at most so many: every text goes on with them. Fewer where the
  // effort does not suffice.
  std::string forced(size_t most, Effort& effort);

  // With a whole effort.
  Status accept(std::string_view bytes) {
    Effort whole;
    return accept(bytes, whole);
  }
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids) {
    Effort whole;
    return fill_mask(mask, end_ids, whole);
  }
  std::string forced(size_t most) {
    Effort whole;
    return forced(most, whole);
  }

 private:
  int32_t set() const;  // the caller holds the grammar's mutex

  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<Grammar::Position> position_;  // null: at the start
};

}  // namespace nereid::text
