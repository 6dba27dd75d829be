// Compiles; masks from what is known of each state alone and of what surrounds it.
#include "text/grammar/grammar.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/lark.h"
#include "text/grammar/regex_expr.h"
#include "text/grammar/structural_tag.h"
#include "text/grammar/token_mask.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr int64_t kMaxKeptBytes = int64_t{32} << 20;
constexpr size_t kMaxKeptMasks = 256;
// Nodes below one that is looked up in CharRuns, and below one for which a run is made.
constexpr int32_t kLeastCovered = 4, kLeastToMakeRun = 128;
constexpr int32_t kManyChars = 255;  // TokenTrie does not count that far
// For one mask or token: about a tenth of a second.
constexpr int64_t kMaxWork = 32'000'000;
// To find bytes that must come: some hundreds of microseconds.
constexpr int64_t kMaxForcedWork = 100'000;

constexpr size_t num_words(int32_t vocab) { return (static_cast<size_t>(vocab) + 31) / 32; }

Status too_much_work() {
  return resource_exhausted(
      "the grammar is too ambiguous: one token takes more than {} steps to check", kMaxWork);
}

StatusOr<Rules> rules_of(GrammarKind kind, std::string_view text) {
  if (text.size() > kMaxGrammarBytes)
    return invalid_argument("the grammar has {} bytes; {} are allowed", text.size(),
                            kMaxGrammarBytes);
  if (kind == GrammarKind::kJsonObject) return json_object_rules();
  if (kind == GrammarKind::kEbnf) return ebnf_rules(text);
  if (kind == GrammarKind::kRegex) {
    ASSIGN_OR_RETURN(ExprPtr expr, regex_expr(text));
    return Rules{std::move(expr)};
  }
  const bool tagged = kind == GrammarKind::kStructuralTag;
  auto root = parse_json(text, kMaxGrammarDepth);
  if (!root.ok()) return annotate(root.status(), tagged ? "structural_tag" : "schema");
  if (tagged) return structural_tag_rules(*root);
  WorkLimit work;
  return json_schema_rules(*root, work);
}

}  // namespace

StatusOr<std::shared_ptr<Grammar>> Grammar::compile(GrammarKind kind, std::string_view text,
                                                    std::shared_ptr<const TokenTrie> tokens) {
  const auto rules = rules_of(kind, text);
  if (!rules.ok())  // it may quote a part of a character
    return invalid_argument("{}", repair_utf8(message(rules.status())));
  ASSIGN_OR_RETURN(Network network, make_network(*rules));
  return std::shared_ptr<Grammar>(new Grammar(std::move(network), std::move(tokens)));
}

Grammar::Grammar(Network network, std::shared_ptr<const TokenTrie> tokens)
    : network_(std::move(network)), tokens_(std::move(tokens)), sets_(network_) {
  path_.resize(static_cast<size_t>(tokens_->max_depth()) + 1);
}

void Grammar::trim() {
  const auto mask_bytes =
      static_cast<int64_t>(masks_.size() * num_words(tokens_->vocab_size()) * sizeof(uint32_t));
  if (masks_.size() > kMaxKeptMasks) masks_.clear();
  if (sets_.bytes() + local_bytes_ + mask_bytes <= kMaxKeptBytes) return;
  sets_.clear(), runs_.clear(), locals_.clear(), masks_.clear(), only_bytes_.clear();
  local_bytes_ = 0;
  ++generation_;
}

// False: what is below the node is no run of characters that `set` takes alike.
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
  int32_t first = node + 1;  // of those that are not too long and not yet visited
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

// Calls visit(node, set there, ids) for each node below `node` that `set`, which stands there, can
// go along, with its ids; of what a run covers, with the ids of many nodes below one, and kDead.
template <class Visit>
void Grammar::walk(int32_t node, int32_t set, const Visit& visit) {
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  const int32_t end = nodes[static_cast<size_t>(node)].end;
  path_[nodes[static_cast<size_t>(node)].depth] = set;
  int32_t i = node + 1;
  int64_t work = 0;
  for (; i < end && !sets_.failed(); ++work) {
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

Status Grammar::make_mask(int32_t set, std::vector<uint32_t>& mask) {
  mask.assign(num_words(tokens_->vocab_size()), 0);
  for (const StateSets::Config config :
       std::vector(sets_.configs(set).begin(), sets_.configs(set).end())) {
    const Local& own = local(config);
    if (sets_.failed()) return too_much_work();
    for (size_t i = 0; i < own.mask.size(); ++i) mask[i] |= own.mask[i];
    for (const int32_t id : own.ids) set_bit(mask, id);
    if (own.exits.empty()) continue;
    const int32_t behind = sets_.behind(config.frame);
    for (const int32_t exit : own.exits)
      walk(exit, behind, [&](int32_t, int32_t, auto ids) {
        for (const int32_t id : ids) set_bit(mask, id);
      });
    if (sets_.failed()) return too_much_work();
  }
  return ok();
}

// The byte that every text goes on with behind `set`; -1: none, as it may end or go on otherwise.
int32_t Grammar::only_byte(int32_t set) {
  const auto [entry, is_new] = only_bytes_.try_emplace(set, -1);
  if (!is_new || sets_.ends(set)) return entry->second;
  int32_t only = -1;
  for (int32_t byte = 0; byte < 256; ++byte) {
    if (sets_.step(set, static_cast<uint8_t>(byte)) == StateSets::kDead) continue;
    if (only >= 0 || sets_.failed()) return -1;
    only = byte;
  }
  if (sets_.failed()) return -1;
  entry->second = only;
  return only;
}

// Where the text stands, also when the grammar has forgotten it.
Status Matcher::catch_up() {
  Grammar& g = *grammar_;
  g.trim();
  if (generation_ != g.generation_) {
    g.sets_.set_budget(std::numeric_limits<int64_t>::max() / 2);
    set_ = g.sets_.start();
    for (const char c : text_) set_ = g.sets_.step(set_, static_cast<uint8_t>(c));
    generation_ = g.generation_;
    if (g.sets_.failed()) {
      generation_ = -1;
      return too_much_work();
    }
  }
  g.sets_.set_budget(kMaxWork);
  return ok();
}

Status Matcher::accept(std::string_view bytes) {
  const std::lock_guard lock(grammar_->mutex_);
  RETURN_IF_ERROR(catch_up());
  int32_t set = set_;
  for (const char c : bytes) set = grammar_->sets_.step(set, static_cast<uint8_t>(c));
  if (grammar_->sets_.failed()) return too_much_work();
  if (set == StateSets::kDead) return invalid_argument("the grammar does not allow these bytes");
  set_ = set;
  text_ += bytes;
  return ok();
}

bool Matcher::may_end() {
  const std::lock_guard lock(grammar_->mutex_);
  return catch_up().ok() && grammar_->sets_.ends(set_);
}

Status Matcher::fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids) {
  const std::lock_guard lock(grammar_->mutex_);
  RETURN_IF_ERROR(catch_up());
  Grammar& g = *grammar_;
  auto found = g.masks_.find(set_);
  if (found == g.masks_.end()) {
    std::vector<uint32_t> made;
    RETURN_IF_ERROR(g.make_mask(set_, made));
    found = g.masks_.emplace(set_, std::move(made)).first;
  }
  std::ranges::fill(mask, 0u);
  std::copy_n(found->second.begin(), std::min(mask.size(), found->second.size()), mask.begin());
  for (const int32_t id : end_ids) {
    if (id < 0 || static_cast<size_t>(id) / 32 >= mask.size()) continue;
    uint32_t& word = mask[static_cast<size_t>(id) / 32];
    const uint32_t bit = 1u << (id % 32);
    word = g.sets_.ends(set_) ? word | bit : word & ~bit;
  }
  return ok();
}

std::string Matcher::forced(size_t most) {
  const std::lock_guard lock(grammar_->mutex_);
  std::string out;
  if (!catch_up().ok()) return out;
  Grammar& g = *grammar_;
  g.sets_.set_budget(kMaxForcedWork);
  for (int32_t set = set_; out.size() < most;) {
    const int32_t byte = g.only_byte(set);
    if (byte < 0) break;
    out += static_cast<char>(byte);
    set = g.sets_.step(set, static_cast<uint8_t>(byte));
  }
  return out;
}

}  // namespace nereid::text
