// One sequence of a request: its tokens, what the device has computed, its end conditions.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "nereid/executor.h"
#include "sched/beam_search.h"
#include "sched/block_pool.h"
#include "sched/encoder_cache.h"
#include "sched/step_plan.h"

namespace nereid::sched {

// Data that others keep with a sequence, from its submission until the scheduler forgets it.
struct Payload {
  virtual ~Payload() = default;
};

// Input of a model's encoder, and the tokens that read its result.
struct EncoderSpec {
  static constexpr int32_t kAllTokens = std::numeric_limits<int32_t>::max();

  std::string key;           // equal for equal inputs only, cache salt included
  bool is_private = false;   // no later request finds its result
  int32_t length = 0;        // positions
  int32_t num_parts = 1;     // that attend to themselves alone
  int32_t num_results = 0;   // rows of the result
  int32_t begin = 0;         // positions of the tokens that read it: [begin, end)
  int32_t end = kAllTokens;  // kAllTokens: the result is held while the sequence runs
};

// Positions [begin, end) of a prompt that attend to one another: no row ends between them.
struct WholeSpan {
  int32_t begin = 0, end = 0;
};

// The scheduler's input for one sequence of a request.
struct SequenceSpec {
  RequestId id = 0;      // unique in the scheduler, not 0
  RequestId leader = 0;  // computes the request's prompt first; 0: none
  std::vector<TokenId> prompt;
  std::vector<InputKey> input_keys;  // of the prompt, with a prompt table; empty: it has none
  int32_t max_new_tokens = 0;        // 0 with OutputConfig::pooling
  std::vector<TokenId> end_ids;      // a drawn one ends the sequence and is not kept
  std::vector<std::vector<TokenId>> stop_words;  // completing one ends the sequence; it is kept
  SamplingConfig sampling;      // for the sampler, seed included; here: beams and min_tokens
  OutputConfig output;          // log-probs are put into the update only when asked for
  std::vector<TokenId> drafts;  // its drafts at first, see Scheduler::draft(); none for searches
  bool has_grammar = false;   // its drafts are tokens that a grammar forces: no figure counts them
  std::string cache_salt;     // prefixes are shared only among equal ones
  uint64_t adapter = 0;       // counted by Limits::max_adapters; 0 = none. Part of the salt, too
  int32_t adapter_pages = 0;  // the same for each sequence with the adapter, at most the limit's
  std::vector<EncoderSpec> encoder_inputs;  // ascending, without overlaps; empty: none
  std::vector<WholeSpan> whole_spans;       // ascending, without overlaps; empty: none
  int32_t score_weight = 1;                 // of a prompt token in Limits::max_scored_tokens
  std::optional<KvCacheRetentionConfig> retention;
  float priority = 0.5f;       // higher first, then the smaller place
  bool streams_beams = false;  // beam search: an update after each step
  Time arrival;
  std::optional<Time> deadline;  // then it ends with kTimedOut; see Scheduler::expire
  std::shared_ptr<const Payload> payload;
};

// Owned and changed by the Scheduler only. Exec and sampler read it on the engine thread at launch.
class Sequence {
 public:
  // `limit`: length (prompt included) at which it ends with kLength. `place`:
  // Scheduler::order_key(). `worst_blocks`: by group, worst_case_blocks() in capacity.h.
  Sequence(SequenceSpec spec, int32_t limit, int32_t tokens_per_block, uint64_t place,
           std::vector<int32_t> worst_blocks = {});

  RequestId id() const { return spec_.id; }
  // Prompt and known output tokens (of one beam).
  std::span<const TokenId> tokens(int32_t beam = 0) const {
    return beams_.live.empty() ? tokens_ : beams_.live[beam].tokens;
  }
  int32_t num_prompt() const { return num_prompt_; }
  int32_t num_generated() const { return static_cast<int32_t>(tokens().size()) - num_prompt_; }
  const SamplingConfig& sampling() const { return spec_.sampling; }
  const SequenceSpec& spec() const { return spec_; }  // without its prompt
  int32_t beam_width() const { return spec_.sampling.beam_width; }
  std::span<const BlockId> block_table(int32_t beam = 0, size_t group = 0) const {
    return beam_slots_[beam].table.groups[group].blocks;
  }
  // Drafts after tokens(); see Scheduler::draft().
  std::span<const TokenId> drafts() const { return drafts_; }
  std::span<const int32_t> draft_parents() const { return draft_parents_; }
  // Whether its next row that samples can get drafts.
  bool may_draft() const { return !draining() && !pools() && !searches() && num_host_rows_ == 0; }
  bool awaits_adapter() const { return awaits_adapter_; }
  // Blocks of the result of an encoder input; empty: it is not held.
  std::span<const BlockId> result_blocks(size_t input) const {
    const EncoderCache::Entry* const entry = results_[input];
    return entry ? std::span<const BlockId>(entry->blocks) : std::span<const BlockId>();
  }
  bool has_unknown() const { return unknown_ > 0; }  // some tokens are known to the device only
  // Tokens, summed over beams, that the next plan computes if it has room; drafts excluded.
  int32_t num_pending() const {
    if (draining() || arriving_ || awaits_adapter_ || holds_ > 0 || at_limit() ||
        num_host_rows_ > 0)
      return 0;
    return (length() - computed_) * num_beams();
  }
  const RequestMetrics& metrics() const { return metrics_; }

 private:
  friend class Scheduler;

  // Slot and blocks of one beam; without beam search there is one.
  struct BeamSlot {
    BlockTable table;  // empty unless running
    int32_t slot = -1;
  };

  // Tokens known to the host or to the device only. plan() computes up to it: computed_ < length().
  int32_t length() const { return static_cast<int32_t>(tokens().size()) + unknown_; }
  bool at_limit() const { return length() >= limit_; }
  bool running() const { return beam_slots_[0].slot >= 0; }
  bool draining() const { return stopped_ || preempted_; }
  bool pools() const { return spec_.output.pooling.has_value(); }
  bool searches() const { return beam_width() > 1; }
  // Rows per step: the live beams, or 1 until the prompt is computed.
  int32_t num_beams() const {
    return beams_.live.empty() ? 1 : static_cast<int32_t>(beams_.live.size());
  }
  // Whether it still needs logits or hidden states of every prompt position.
  bool wants_all_logits() const {
    const OutputConfig& o = spec_.output;
    return (o.return_context_logits || o.num_prompt_log_probs || !o.alignment_heads.empty() ||
            o.pooling == Pooling::kMean) &&
           computed_ < num_prompt_ && logits_done_ < num_prompt_;
  }
  // Prompt log-probabilities and attention scores: O(vocabulary) or O(heads * encoder positions)
  // host work per prompt position.
  bool scores_prompt() const {
    const OutputConfig& o = spec_.output;
    return (o.num_prompt_log_probs || !o.alignment_heads.empty()) && wants_all_logits();
  }
  // Order: higher priority, then smaller place.
  bool before(const Sequence& other) const {
    if (spec_.priority != other.spec_.priority) return spec_.priority > other.spec_.priority;
    return place_ < other.place_;
  }

  // Appends one sampled token; returns whether it was kept, and sets reason_ if it ends the
  // sequence. Tested in this order: end id, stop word, length.
  bool append(TokenId token);
  // `token` is the next one: drops drafts that do not begin with it, and draft trees.
  void check_drafts(TokenId token);
  bool completes_stop_word() const;

  BeamRules beam_rules() const;
  void forget_beams();  // back to the prompt

  // Keys of all full blocks of known tokens (beam search: of the prompt); each is hashed once.
  std::span<const BlockKey> keys();
  Contents contents();  // of beam 0

  const int32_t num_prompt_;
  std::vector<TokenId> tokens_;  // prompt, then output from commit(); beam search: prompt only
  const SequenceSpec spec_;      // without its prompt
  const int32_t limit_;
  const std::vector<int32_t> worst_blocks_;
  const int32_t tokens_per_block_;
  const uint64_t place_;
  std::vector<TokenId> drafts_;
  std::vector<int32_t> draft_parents_;
  std::vector<BlockKey> keys_;  // extended by keys()
  BeamState beams_;             // live: empty without beam search, and until the prompt is computed
  std::vector<std::vector<TokenLogProb>> candidates_;  // of a search: by beam, of this step

  std::vector<BeamSlot> beam_slots_;  // [beam_width]; slots >= 0 exactly while running
  int32_t computed_ = 0;              // positions whose KV is written or planned; 0 after release
  int32_t committed_ = 0;             // positions whose rows were committed
  int32_t unknown_ = 0;               // tokens on the device only: +1 plan(), -1 commit()
  int32_t inflight_ = 0;              // rows in flight; memory is kept until 0
  int32_t num_host_rows_ = 0;         // of those: rows with needs_host
  int32_t num_draft_positions_ = 0;   // positions of drafts in flight, part of computed_
  int32_t logits_done_ = 0;           // positions whose context logits have been committed
  uint64_t planned_at_ = 0;           // serial of the last plan with a row of it
  int32_t planned_from_ = 0;          // start of that row
  int32_t pending_from_ = 0, pending_to_ = 0;  // its pending prefix blocks, [from, to)
  int32_t onboarded_ = 0;                      // blocks copied from the host pool
  // Results of its encoder inputs, null: not held. Inputs before next_input_ have been passed:
  // their tokens are computed.
  std::vector<EncoderCache::Entry*> results_;
  size_t next_input_ = 0;
  bool arriving_ = false;        // some of its blocks have copies in flight
  bool awaits_adapter_ = false;  // see Scheduler::set_adapter_check()
  int32_t holds_ = 0;            // hold() calls without release()
  BlockKey awaited_ = 0;         // pending prefix block of another sequence that it waits for
  int32_t num_delays_ = 0;       // plans for which it waited for pending blocks
  bool started_ = false;         // was admitted at least once
  bool preempted_ = false;       // draining: releases memory when none is in flight
  bool tainted_ = false;         // rows in flight and blocks are tainted
  bool stopped_ = false;         // its final update is out; released when nothing is in flight
  bool failed_ = false;          // ended by an error: its blocks are not published
  FinishReason reason_ = FinishReason::kNotFinished;  // set by append() or when stopped
  RequestMetrics
      metrics_;  // arrival, first_scheduled and counts; token times are set by the outbox
};

}  // namespace nereid::sched
