// Texts that a schema, regular expression or grammar allows, and the tokens that continue one.
#pragma once

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

namespace nereid::text {

enum class GrammarKind { kJsonObject, kJsonSchema, kRegex, kEbnf, kStructuralTag };

inline constexpr size_t kMaxGrammarBytes = size_t{1} << 18;

// A compiled grammar for one vocabulary. What it learns of its states is kept, within bounds, for
// all its matchers; safe from many threads at once.
class Grammar {
 public:
  // `text` is the schema, expression, grammar or structural tag; none for kJsonObject.
  // InvalidArgument says what is wrong, with its place, or which limit is exceeded.
  static StatusOr<std::shared_ptr<Grammar>> compile(GrammarKind kind, std::string_view text,
                                                    std::shared_ptr<const TokenTrie> tokens);

  const TokenTrie& tokens() const { return *tokens_; }

 private:
  friend class Matcher;
  // Of a state in the outermost rule, or in calls that are not known.
  struct Local {
    std::vector<int32_t> ids;    // tokens that continue the text, ascending, if they are few
    std::vector<uint32_t> mask;  // else as bits
    std::vector<int32_t> exits;  // nodes of the trie at which the state's rule may end
  };

  Grammar(Network network, std::shared_ptr<const TokenTrie> tokens);
  // The caller holds the mutex.
  void trim();
  const Local& local(StateSets::Config config);
  template <class Visit>
  void walk(int32_t node, int32_t set, const Visit& visit);
  template <class Visit>
  bool walk_run(int32_t node, int32_t set, const Visit& visit);
  Status make_mask(int32_t set, std::vector<uint32_t>& mask);
  int32_t only_byte(int32_t set);

  const Network network_;
  const std::shared_ptr<const TokenTrie> tokens_;
  std::mutex mutex_;
  StateSets sets_;
  CharRuns runs_{sets_};
  int64_t generation_ = 0;  // raised when sets_ was cleared
  int64_t local_bytes_ = 0;
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
  // changed. ResourceExhausted: the grammar is too ambiguous.
  Status accept(std::string_view bytes);
  // Whether the text may end here.
  bool may_end();
  // Sets the bit of each token that may follow, of `end_ids` if the text may end, and no other:
  // bit id % 32 of mask[id / 32], for ids below 32 * mask.size(). ResourceExhausted as above.
  Status fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids);
  // The bytes that must come next, at most so many: every text goes on with them.
  std::string forced(size_t most);

 private:
  Status catch_up();  // the caller holds the grammar's mutex

  std::shared_ptr<Grammar> grammar_;
  std::string text_;
  int64_t generation_ = -1;
  int32_t set_ = 0;
};

}  // namespace nereid::text
