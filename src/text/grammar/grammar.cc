// Grammar compilation, and token masks: the mask of a state set is the union of cached masks
// of its single states and of the tokens that leave the state's rule, which are checked
// against the callers.
#include "text/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/grammar/lark.h"
#include "text/grammar/regex_expr.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/structural_tag.h"
#include "text/grammar/token_mask.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

// Limit of a grammar's cached bytes, and the lower limit while its account is large.
constexpr int64_t kMaxKeptBytes = int64_t{32} << 20, kLeastKeptBytes = int64_t{4} << 20;
constexpr int64_t kLargeAccountBytes = int64_t{96} << 20;
constexpr size_t kMaxKeptMasks = 256;
// Fewest nodes of a subtree for a look-up in CharRuns, and for computing a run.
constexpr int32_t kLeastCovered = 4, kLeastToMakeRun = 128;
constexpr int32_t kManyChars = 255;  // TokenTrie counts characters only up to 254
// Steps for finding forced bytes: some hundreds of microseconds.
constexpr int64_t kMaxForcedWork = 100'000;
constexpr int32_t kNodesAtOnce = 1024;  // trie nodes between two checks of the budget

constexpr size_t num_words(int32_t vocab) { return (static_cast<size_t>(vocab) + 31) / 32; }

StatusOr<Rules> rules_of(GrammarKind kind, std::string_view text, WorkLimit& work) {
  if (text.size() > kMaxGrammarBytes)
    return invalid_argument("the grammar has {} bytes; {} are allowed", text.size(),
                            kMaxGrammarBytes);
  constexpr int64_t kByteSteps = 4;  // work of parsing a byte
  RETURN_IF_ERROR(work.spend(kByteSteps * static_cast<int64_t>(text.size())));
  if (kind == GrammarKind::kJsonObject) return json_object_rules();
  if (kind == GrammarKind::kEbnf) return ebnf_rules(text);
  if (kind == GrammarKind::kRegex) {
    ASSIGN_OR_RETURN(ExprPtr expr, regex_expr(text));
    return Rules{std::move(expr)};
  }
  const bool tagged = kind == GrammarKind::kStructuralTag;
  auto root = parse_json(text, kMaxGrammarDepth);
  if (!root.ok()) return annotate(root.status(), tagged ? "structural_tag" : "schema");
  return tagged ? structural_tag_rules(*root, work) : json_schema_rules(*root, work);
}

}  // namespace

StatusOr<Network> Grammar::parse(GrammarKind kind, std::string_view text, WorkLimit& work) {
  const auto rules = rules_of(kind, text, work);
  if (!rules.ok())  // the message may quote a part of a character
    return invalid_argument("{}", repair_utf8(message(rules.status())));
  return make_network(*rules, work);
}

std::shared_ptr<Grammar> Grammar::of(Network network, std::shared_ptr<const TokenTrie> tokens,
                                     std::shared_ptr<GrammarMemory> account) {
  return std::shared_ptr<Grammar>(
      new Grammar(std::move(network), std::move(tokens), std::move(account)));
}

StatusOr<std::shared_ptr<Grammar>> Grammar::compile(GrammarKind kind, std::string_view text,
                                                    std::shared_ptr<const TokenTrie> tokens) {
  WorkLimit work;
  ASSIGN_OR_RETURN(Network network, parse(kind, text, work));
  return of(std::move(network), std::move(tokens));
}

Grammar::Grammar(Network network, std::shared_ptr<const TokenTrie> tokens,
                 std::shared_ptr<GrammarMemory> account)
    : network_(std::move(network)),
      tokens_(std::move(tokens)),
      account_(std::move(account)),
      network_bytes_(network_.bytes()),
      sets_(network_) {
  path_.resize(static_cast<size_t>(tokens_->max_depth()) + 1);
  count_bytes();
}

Grammar::~Grammar() {
  if (account_) *account_ -= counted_bytes_;
}

// The lock on a grammar and the budget of one call, for the call's scope.
class Grammar::Use {
 public:
  Use(Grammar& grammar, StepBudget& effort)
      : grammar_(grammar), effort_(effort), lock_(grammar.mutex_, std::defer_lock) {
    if (effort.waits)
      lock_.lock();
    else if (!lock_.try_lock() || grammar.exceeds_cache_limit())
      return;
    if (grammar.exceeds_cache_limit()) grammar.trim();
    grammar.sets_.set_budget(std::max<int64_t>(effort.steps, 0));
    is_possible_ = true;
  }
  ~Use() {
    if (!is_possible_) return;
    effort_.steps = std::max<int64_t>(grammar_.sets_.budget(), 0);
    grammar_.count_bytes();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  // An error ends the call with this status.
  Status status() const {
    if (is_possible_ && !grammar_.sets_.failed()) return ok();
    if (!effort_.waits) return unavailable("the grammar needs more steps than are left");
    return invalid_argument(
        "the grammar is too ambiguous: one token takes more than {} steps, {} places at a time or "
        "{} bytes to check",
        StepBudget::kMost, StateSets::kMaxConfigs, StateSets::kMostBytes);
  }

 private:
  Grammar& grammar_;
  StepBudget& effort_;
  std::unique_lock<std::mutex> lock_;
  bool is_possible_ = false;
};

int64_t Grammar::kept_bytes() const {
  const size_t mask_bytes = masks_.size() * num_words(tokens_->vocab_size()) * sizeof(uint32_t);
  return sets_.bytes() + local_bytes_ + static_cast<int64_t>(mask_bytes);
}

int64_t Grammar::bytes() {
  const std::lock_guard lock(mutex_);
  return network_bytes_ + kept_bytes();
}

bool Grammar::exceeds_cache_limit() const {
  if (masks_.size() > kMaxKeptMasks) return true;
  const bool is_large = account_ && *account_ > kLargeAccountBytes;
  return kept_bytes() > std::max(is_large ? kLeastKeptBytes : kMaxKeptBytes, 2 * needed_bytes_);
}

// Drops all caches but the state sets of live positions, so that no text is matched again.
void Grammar::trim() {
  masks_.clear();
  if (!exceeds_cache_limit()) return;
  std::vector<std::shared_ptr<Position>> live;
  std::vector<int32_t*> kept;
  for (const std::weak_ptr<Position>& one : positions_)
    if (auto position = one.lock()) {
      kept.push_back(&position->set);
      live.push_back(std::move(position));
    }
  positions_.assign(live.begin(), live.end());
  sets_.clear_but(kept);
  runs_.clear(), locals_.clear(), only_bytes_.clear();
  local_bytes_ = 0;
  start_ = StateSets::kDead;
  needed_bytes_ = sets_.bytes();
}

void Grammar::count_bytes() {
  if (!account_) return;
  const int64_t bytes = network_bytes_ + kept_bytes();
  *account_ += bytes - counted_bytes_;
  counted_bytes_ = bytes;
}

int32_t Grammar::start() {
  if (start_ == StateSets::kDead) start_ = sets_.start();
  return start_;
}

int32_t Grammar::follow(int32_t set, std::string_view bytes) {
  for (const char c : bytes) {
    if (set == StateSets::kDead) break;
    set = sets_.step(set, static_cast<uint8_t>(c));
  }
  return set;
}

std::shared_ptr<Grammar::Position> Grammar::make_position(int32_t set) {
  auto position = std::make_shared<Position>(Position{set});
  if (positions_.size() >= most_positions_) {
    std::erase_if(positions_, [](const auto& one) { return one.expired(); });
    most_positions_ = std::max(most_positions_, 2 * positions_.size());
  }
  positions_.push_back(position);
  return position;
}

StatusOr<bool> Grammar::begins(std::string_view bytes, StepBudget& effort) {
  const Use use(*this, effort);
  RETURN_IF_ERROR(use.status());
  const int32_t set = follow(start(), bytes);
  RETURN_IF_ERROR(use.status());
  return set != StateSets::kDead;
}

// False: the subtree is no run of characters that `set` accepts alike.
template <class Visit>
bool Grammar::walk_run(int32_t node, int32_t set, const Visit& visit) {
  const TokenTrie::Node& n = tokens_->nodes()[static_cast<size_t>(node)];
  const int32_t num_below = n.end - node - 1;
  if (num_below < kLeastCovered) return false;
  const CharRuns::Run run = runs_.of(set, num_below >= kLeastToMakeRun);
  if ((n.kinds_below & ~run.kinds) != 0) return false;
  if (n.chars_below <= run.length) {
    visit(node, StateSets::kDead, tokens_->ids_of(node + 1, n.end));
    return true;
  }
  if (!run.is_longest || n.num_chars + run.length >= kManyChars) return false;
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  const int32_t most = n.num_chars + run.length;
  int32_t first = node + 1;  // first node not visited whose text is short enough
  for (int32_t i = first; i < n.end;) {
    if (nodes[static_cast<size_t>(i)].num_chars <= most) {
      ++i;
      continue;
    }
    visit(node, StateSets::kDead, tokens_->ids_of(first, i));
    first = i = nodes[static_cast<size_t>(i)].end;
  }
  visit(node, StateSets::kDead, tokens_->ids_of(first, n.end));
  return true;
}

// Calls visit(node, set at it, ids) for each node below `node` that can be reached from `set`,
// the state set at `node`. A subtree that a run covers is visited once, with the ids of all
// its nodes and kDead.
template <class Visit>
void Grammar::walk(int32_t node, int32_t set, const Visit& visit) {
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  const int32_t end = nodes[static_cast<size_t>(node)].end;
  path_[nodes[static_cast<size_t>(node)].depth] = set;
  int32_t i = node + 1;
  int64_t work = 0;
  for (; i < end && !sets_.failed(); ++work) {
    if (work == kNodesAtOnce && !sets_.spend(std::exchange(work, 0))) return;
    const TokenTrie::Node& n = nodes[static_cast<size_t>(i)];
    const int32_t next = sets_.step(path_[n.depth - 1u], n.byte);
    if (next == StateSets::kDead) {
      i = n.end;
      continue;
    }
    path_[n.depth] = next;
    visit(i, next, tokens_->ids(i));
    i = walk_run(i, next, visit) ? n.end : i + 1;
  }
  sets_.spend(work);
}

const Grammar::Local& Grammar::local(StateSets::Config config) {
  int32_t state = config.state;
  const bool outermost = config.frame == StateSets::kBottom;
  for (const NetworkState* s = &network_.states[static_cast<size_t>(state)];
       s->like >= 0 && s->like_bytes >= tokens_->max_depth();
       s = &network_.states[static_cast<size_t>(state)])
    state = s->like;
  const auto [found, is_new] = locals_.try_emplace({state, outermost});
  Local& result = found->second;
  if (!is_new) return result;
  walk(0, sets_.inside(state, outermost), [&](int32_t node, int32_t set, auto ids) {
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    if (sets_.leaves(set)) result.exits.push_back(node);
  });
  if (sets_.failed()) {
    static const Local kNone;
    locals_.erase(found);
    return kNone;
  }
  const size_t words = num_words(tokens_->vocab_size());
  if (result.ids.size() > words) {
    result.mask.resize(words);
    for (const int32_t id : result.ids) set_bit(result.mask, id);
    result.ids = {};
  }
  result.ids.shrink_to_fit(), result.exits.shrink_to_fit();
  local_bytes_ +=
      static_cast<int64_t>(sizeof(Local)) +
      4 * static_cast<int64_t>(result.ids.size() + result.mask.size() + result.exits.size());
  return result;
}

void Grammar::make_mask(int32_t set, std::vector<uint32_t>& mask) {
  mask.assign(num_words(tokens_->vocab_size()), 0);
  for (const StateSets::Config config :
       std::vector(sets_.configs(set).begin(), sets_.configs(set).end())) {
    const Local& own = local(config);
    if (!sets_.spend(static_cast<int64_t>(own.mask.size() / 4 + own.ids.size() + own.exits.size())))
      return;
    for (size_t i = 0; i < own.mask.size(); ++i) mask[i] |= own.mask[i];
    for (const int32_t id : own.ids) set_bit(mask, id);
    if (own.exits.empty()) continue;
    const int32_t behind = sets_.behind(config.frame);
    for (const int32_t exit : own.exits)
      walk(exit, behind, [&](int32_t, int32_t, auto ids) {
        for (const int32_t id : ids) set_bit(mask, id);
      });
    if (sets_.failed()) return;
  }
}

// The byte that follows `set` in every text; -1: the text may end, or several bytes may follow.
int32_t Grammar::only_byte(int32_t set) {
  if (sets_.ends(set)) return -1;
  const auto known = only_bytes_.find(set);
  if (known != only_bytes_.end()) return known->second;
  int32_t only = -1;
  for (int32_t byte = 0; byte < 256; ++byte) {
    if (sets_.step(set, static_cast<uint8_t>(byte)) == StateSets::kDead) continue;
    const bool is_second = only >= 0;
    only = is_second ? -1 : byte;
    if (is_second) break;
  }
  if (sets_.failed()) return -1;
  only_bytes_[set] = only;
  return only;
}

int32_t Matcher::set() const { return position_ ? position_->set : grammar_->start(); }

Status Matcher::accept(std::string_view bytes, StepBudget& effort) {
  Grammar& g = *grammar_;
  const Grammar::Use use(g, effort);
  RETURN_IF_ERROR(use.status());
  const int32_t next = g.follow(set(), bytes);
  RETURN_IF_ERROR(use.status());
  if (next == StateSets::kDead) return invalid_argument("the grammar does not allow these bytes");
  if (position_ && position_.use_count() == 1)
    position_->set = next;
  else
    position_ = g.make_position(next);
  return ok();
}

bool Matcher::may_end() {
  StepBudget whole;
  const Grammar::Use use(*grammar_, whole);
  return grammar_->sets_.ends(set());
}

Status Matcher::fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids,
                          StepBudget& effort) {
  Grammar& g = *grammar_;
  const Grammar::Use use(g, effort);
  RETURN_IF_ERROR(use.status());
  const int32_t here = set();
  auto found = g.masks_.find(here);
  if (found == g.masks_.end()) {
    std::vector<uint32_t> made;
    g.make_mask(here, made);
    RETURN_IF_ERROR(use.status());
    found = g.masks_.emplace(here, std::move(made)).first;
  }
  std::ranges::fill(mask, 0u);
  std::copy_n(found->second.begin(), std::min(mask.size(), found->second.size()), mask.begin());
  for (const int32_t id : end_ids) {
    if (id < 0 || static_cast<size_t>(id) / 32 >= mask.size()) continue;
    g.sets_.ends(here) ? set_bit(mask, id) : clear_bit(mask, id);
  }
  return ok();
}

std::string Matcher::forced(size_t most, StepBudget& effort) {
  Grammar& g = *grammar_;
  StepBudget small{.steps = std::min(effort.steps, kMaxForcedWork), .waits = effort.waits};
  effort.steps -= small.steps;
  std::string out;
  {
    const Grammar::Use use(g, small);
    if (!use.status().ok()) return out;
    for (int32_t at = set(); out.size() < most;) {
      const int32_t byte = g.only_byte(at);
      if (byte < 0) break;
      out += static_cast<char>(byte);
      at = g.sets_.step(at, static_cast<uint8_t>(byte));
    }
  }
  effort.steps += small.steps;
  return out;
}

}  // namespace nereid::text
