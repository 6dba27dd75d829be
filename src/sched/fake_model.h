// Test only: a fake in-order device that stores KV contents, and the same model without blocks as
// the reference. A token is a hash of its whole prefix as read through the block table: a wrong
// block, stale hit, lost write or misordered copy changes the text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/scheduler.h"

namespace nereid::sched {

inline constexpr TokenId kVocab = 24;
inline constexpr uint64_t kNothing = 0x9E3779B97F4A7C15u;

inline uint64_t mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0xD6E8FEB86659FD93u;
  return h ^ (h >> 32);
}

// The input at a position: the token id, mixed with its input key if it has one.
inline TokenId input_at(const SequenceSpec& s, int position, TokenId token) {
  const auto p = static_cast<size_t>(position);
  return p < s.input_keys.size() ? token + kVocab * static_cast<TokenId>(s.input_keys[p].low)
                                 : token;
}

inline uint64_t prefix_hash(const SequenceSpec& s, std::span<const TokenId> tokens) {
  uint64_t h = kNothing;
  for (int p = 0; p < static_cast<int>(tokens.size()); ++p)
    h = mix(h, static_cast<uint64_t>(input_at(s, p, tokens[p])));
  return h;
}

// Ids banned at an output position below min_tokens.
inline std::vector<TokenId> banned_ids(const SequenceSpec& s, int num_generated) {
  if (num_generated >= s.sampling.min_tokens.value_or(0)) return {};
  std::vector<TokenId> ids = s.end_ids;
  for (const auto& word : s.stop_words)
    if (word.size() == 1) ids.push_back(word[0]);
  return ids;
}

inline TokenId draw_token(uint64_t h, const SequenceSpec& s, std::span<const TokenId> banned) {
  auto token = static_cast<TokenId>(mix(h, 7 + s.sampling.seed.value_or(0)) % kVocab);
  while (std::ranges::find(banned, token) != banned.end()) token = (token + 1) % kVocab;
  return token;
}

// Candidates without the banned ones, likeliest first.
inline std::vector<TokenLogProb> likeliest(uint64_t h, std::span<const TokenId> banned, int count) {
  std::vector<TokenLogProb> all;
  for (TokenId v = 0; v < kVocab; ++v)
    if (std::ranges::find(banned, v) == banned.end())
      all.push_back({v, -static_cast<float>(mix(h, 1000 + v) % 4096) / 512});
  std::ranges::stable_sort(all, std::ranges::greater(), &TokenLogProb::log_prob);
  if (static_cast<int>(all.size()) > count) all.resize(count);
  return all;
}

// A row as copied at launch: later changes of the sequence must not reach the device.
struct LaunchedRow {
  LaunchedRow(const ScheduledRow& r, size_t num_groups) : row(r), spec(&r.sequence->spec()) {
    const auto known = r.sequence->tokens(r.beam);
    const int num_known = static_cast<int>(known.size());
    for (int p = r.start; p < r.end() - r.input_on_device; ++p)
      input.push_back(
          input_at(*spec, p, p < num_known ? known[p] : r.sequence->drafts()[p - num_known]));
    for (size_t g = 0; g < num_groups; ++g) {
      const auto blocks = r.sequence->block_table(r.beam, g);
      tables.emplace_back(blocks.begin(), blocks.end());
    }
    const auto tree = r.sequence->draft_parents();
    for (int i = 0; i < r.num_drafts; ++i) parents.push_back(tree.empty() ? i - 1 : tree[i]);
    for (int p = r.end() - r.num_drafts; p <= r.end(); ++p)
      banned.push_back(banned_ids(*spec, p - r.sequence->num_prompt()));
  }
  ScheduledRow row;
  const SequenceSpec* spec;
  std::vector<TokenId> input;
  std::vector<int> parents;                  // of its drafts
  std::vector<std::vector<TokenId>> banned;  // for each token that may be drawn
  std::vector<std::vector<BlockId>> tables;  // block tables by group
};

struct LaunchedStep {
  LaunchedStep(StepPlan p, size_t num_groups) : plan(std::move(p)) {
    rows.reserve(plan.rows.size());
    for (const ScheduledRow& row : plan.rows) rows.emplace_back(row, num_groups);
  }
  StepPlan plan;
  std::vector<LaunchedRow> rows;
  bool fails = false;
};

struct FakeResult {
  std::vector<TokenId> tokens;  // accepted drafts and the next token
  std::vector<TokenLogProb> top;
  bool whole = true;  // pooled prompt's last row: its cells were written for it
};

class FakeDevice {
 public:
  explicit FakeDevice(const Limits& l)
      : t_(l.tokens_per_block), groups_(l.groups), last_(l.max_batch_size) {
    for (const BlockGroupConfig& group : groups_)
      cells_.emplace_back(static_cast<size_t>(group.num_blocks + group.num_host_blocks) * t_);
  }

  // Not ok: the copies deliver garbage.
  void copy(std::span<const PlanCopy> copies, bool ok = true) {
    for (const PlanCopy& c : copies) {
      Cell* const to = &cells_.at(c.group).at(size_t(c.to) * t_);
      std::copy_n(&cells_.at(c.group).at(size_t(c.from) * t_), t_, to);
      if (!ok) std::fill_n(to, t_, Cell{});
    }
  }

  // Run when the host waits for the step: the worst case for blocks released too early. A failed
  // step copies nothing and writes garbage.
  std::vector<FakeResult> run(const LaunchedStep& step) {
    if (!step.fails) copy(step.plan.copies);
    for (const LaunchedRow& r : step.rows)
      for (size_t g = 0; g < groups_.size(); ++g) write(r, g, step.fails);
    std::vector<FakeResult> results;
    for (const LaunchedRow& r : step.rows) results.push_back(draw(r));
    return results;
  }

 private:
  // The KV of one position: the token, and the hash of the prefix up to it.
  struct Cell {
    TokenId token = -1;
    uint64_t prefix = 0;
  };

  Cell& cell(const LaunchedRow& r, size_t g, int position) {
    const BlockId block = r.tables.at(g).at(position / t_);
    return cells_.at(g).at(static_cast<size_t>(block) * t_ + position % t_);
  }

  // Each group stores a different hash of the same tokens.
  static uint64_t nothing(size_t g) { return kNothing + g; }

  void write(const LaunchedRow& r, size_t g, bool fails) {
    for (int p = r.row.start; p < r.row.end(); ++p) {
      const bool on_device = r.row.input_on_device && p == r.row.end() - 1;
      Cell& c = cell(r, g, p);
      c.token = fails ? -2 : on_device ? last_.at(r.row.slot) : r.input.at(p - r.row.start);
      const int first = r.row.first_sampled(), parent = p < first ? 0 : r.parents[p - first];
      const int from = p < first ? p - 1 : first + parent;
      const uint64_t before = p == 0 ? nothing(g) : cell(r, g, from).prefix;
      c.prefix = mix(before, static_cast<uint64_t>(c.token));
    }
  }

  // Whether any token of the row attends to position `key`.
  static bool sees(const LaunchedRow& r, const BlockGroupConfig& group, int key) {
    return group.window == 0 || key > r.row.start - group.window || key < group.sink;
  }

  // Whether the cells of a group below `end` to which the row attends were written for it, as far
  // as the group's hashes show.
  bool is_whole(const LaunchedRow& r, size_t g, int end) {
    bool before_seen = true;
    uint64_t before = nothing(g);
    for (int p = 0; p < end; ++p) {
      const bool seen = sees(r, groups_[g], p);
      if (seen) {
        const Cell& c = cell(r, g, p);
        if (before_seen && c.prefix != mix(before, static_cast<uint64_t>(c.token))) return false;
        // Group 0, where its window covers p, must hold the same token.
        if (sees(r, groups_[0], p) && cell(r, 0, p).token != c.token) return false;
        before = c.prefix;
      }
      before_seen = seen;
    }
    return true;
  }

  FakeResult draw(const LaunchedRow& r) {
    FakeResult result;
    for (size_t g = 0; r.row.ends_prompt && g < groups_.size(); ++g)
      result.whole = result.whole && is_whole(r, g, r.row.end());
    if (!r.row.samples) return result;
    const int width = r.spec->sampling.beam_width, first = r.row.first_sampled();
    for (int draft = -1, p = first;; ++p) {
      if (draft >= 0)
        for (size_t g = 0; g < groups_.size(); ++g) cell(r, g, p - 1) = cell(r, g, first + draft);
      uint64_t h = cell(r, 0, p - 1).prefix;
      for (size_t g = 0; g < groups_.size(); ++g)
        if (!is_whole(r, g, p)) h = mix(h, 13);
      const std::vector<TokenId>& banned = r.banned.at(p - first);
      if (width > 1) return {.top = likeliest(h, banned, 2 * width)};
      result.tokens.push_back(last_.at(r.row.slot) = draw_token(h, *r.spec, banned));
      draft = child_of(r, draft, result.tokens.back());
      if (draft < 0) return result;
    }
  }

  // The child of `draft` with this token; -1: none.
  static int child_of(const LaunchedRow& r, int draft, TokenId token) {
    for (int i = draft + 1; i < r.row.num_drafts; ++i)
      if (r.parents[i] == draft && r.input.at(r.row.first_sampled() + i - r.row.start) == token)
        return i;
    return -1;
  }

  int t_;
  std::vector<BlockGroupConfig> groups_;
  std::vector<std::vector<Cell>> cells_;  // by group: a cell for each position of its blocks
  std::vector<TokenId> last_;             // per slot
};

struct Outcome {
  std::vector<TokenId> text;
  FinishReason reason = FinishReason::kNotFinished;
  float cum_log_prob = 0, score = 0;  // beams
};

inline bool completes_stop_word(const SequenceSpec& s, std::span<const TokenId> all) {
  return std::ranges::any_of(s.stop_words, [&](const auto& w) {
    return w.size() <= all.size() && std::equal(w.rbegin(), w.rend(), all.rbegin());
  });
}

// The same request alone, without blocks, chunks or steps.
inline Outcome reference(const SequenceSpec& s, const Limits& l) {
  std::vector<TokenId> all = s.prompt;
  Outcome out;
  if (s.output.pooling) out.reason = FinishReason::kLength;
  while (out.reason == FinishReason::kNotFinished) {
    const int num_output = static_cast<int>(out.text.size());
    const auto banned = banned_ids(s, num_output);
    const TokenId t = draw_token(prefix_hash(s, all), s, banned);
    if (num_output >= s.sampling.min_tokens.value_or(0) &&
        std::ranges::find(s.end_ids, t) != s.end_ids.end()) {
      out.reason = FinishReason::kEndId;
      return out;
    }
    all.push_back(t);
    out.text.push_back(t);
    if (num_output + 1 >= s.sampling.min_tokens.value_or(0) && completes_stop_word(s, all)) {
      out.reason = FinishReason::kStopWords;
    } else if (num_output + 1 == s.max_new_tokens ||
               static_cast<int>(all.size()) == l.max_sequence_length) {
      out.reason = FinishReason::kLength;
    }
  }
  return out;
}

struct ReferenceBeam {
  std::vector<TokenId> text;
  float cum, rank;
};

// All continuations of all beams, best first.
inline std::vector<ReferenceBeam> continuations(const SequenceSpec& s, int length,
                                                const std::vector<ReferenceBeam>& live) {
  std::vector<ReferenceBeam> all;
  for (size_t b = 0; b < live.size(); ++b) {
    std::vector<TokenId> tokens = s.prompt;
    tokens.insert(tokens.end(), live[b].text.begin(), live[b].text.end());
    const auto banned = banned_ids(s, length - 1);
    for (const TokenLogProb& p : likeliest(prefix_hash(s, tokens), banned, kVocab)) {
      ReferenceBeam next{.text = live[b].text, .cum = live[b].cum + p.log_prob};
      next.rank =
          next.cum + s.sampling.beam_search_diversity_rate.value_or(0) * static_cast<float>(b);
      next.text.push_back(p.token);
      all.push_back(next);
    }
  }
  std::ranges::stable_sort(
      all, [](const ReferenceBeam& a, const ReferenceBeam& b) { return a.rank > b.rank; });
  return all;
}

// The finish reason of a text of `length` new tokens; kNotFinished: goes on.
inline FinishReason end_of(const SequenceSpec& s, int length, const std::vector<TokenId>& text) {
  std::vector<TokenId> tokens = s.prompt;
  tokens.insert(tokens.end(), text.begin(), text.end());
  if (std::ranges::count(s.end_ids, tokens.back()) > 0) return FinishReason::kEndId;
  const bool stops = length >= s.sampling.min_tokens.value_or(0) && completes_stop_word(s, tokens);
  return stops ? FinishReason::kStopWords : FinishReason::kNotFinished;
}

// Beam search in its plainest form: all continuations of all beams, sorted.
inline std::vector<Outcome> reference_beams(const SequenceSpec& s, const Limits& l) {
  const SamplingConfig& c = s.sampling;
  const size_t width = c.beam_width;
  const float penalty = c.length_penalty.value_or(0);
  const int early = c.early_stopping.value_or(1);
  const int max_new =
      std::min<int>(s.max_new_tokens, l.max_sequence_length - static_cast<int>(s.prompt.size()));
  const auto score = [&](float value, size_t length) {
    return penalty == 0 ? value : value / std::pow(static_cast<float>(length), penalty);
  };
  std::vector<Outcome> pool;
  std::vector<ReferenceBeam> live = {{.cum = 0}};
  const auto keep = [&](Outcome o) {
    pool.push_back(std::move(o));
    std::ranges::stable_sort(pool,
                             [](const Outcome& a, const Outcome& b) { return a.score > b.score; });
    if (pool.size() > width) pool.pop_back();
  };
  for (int length = 1;; ++length) {
    std::vector<ReferenceBeam> all = continuations(s, length, live);
    if (all.empty()) break;
    if (all.size() > 2 * width) all.resize(2 * width);
    live.clear();
    for (size_t i = 0; i < all.size() && live.size() < width; ++i) {
      const FinishReason reason = end_of(s, length, all[i].text);
      if (reason == FinishReason::kNotFinished) {
        live.push_back(all[i]);
      } else if (i < width) {
        Outcome o{all[i].text, reason, all[i].cum, score(all[i].rank, length)};
        if (reason == FinishReason::kEndId) o.text.pop_back();
        keep(std::move(o));
      }
    }
    if (pool.size() == width) {
      const int attain = early != 0 && penalty > 0 ? max_new : length;
      if (early == 1 || pool.back().score >= score(all[0].rank, attain)) live.clear();
    }
    if (live.empty() || length == max_new) break;
  }
  for (const ReferenceBeam& b : live)
    keep({b.text, FinishReason::kLength, b.cum, score(b.cum, std::max<size_t>(1, b.text.size()))});
  const size_t count = c.num_return_sequences.value_or(c.beam_width);
  if (pool.size() > count) pool.resize(count);
  return pool;
}

}  // namespace nereid::sched
