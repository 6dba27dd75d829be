// One request while it is being computed: its tokens, how far the device is, and when it ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "nereid/executor.h"
#include "sched/beam_search.h"
#include "sched/block_pool.h"
#include "sched/step_plan.h"

namespace nereid::sched {

// What others keep with a sequence, from its submission until the scheduler forgets it.
struct Payload {
  virtual ~Payload() = default;
};

// What the scheduler has to know of one sequence of a request.
struct SequenceSpec {
  RequestId id = 0;      // unique among the sequences of one scheduler, not 0
  RequestId leader = 0;  // another sequence of the same group with the same prompt; 0 = none
  std::vector<TokenId> prompt;
  std::vector<InputKey> input_keys;  // of the prompt, with a prompt table; empty: it has none
  int32_t max_new_tokens = 0;        // 0 with OutputConfig::pooling
  std::vector<TokenId> end_ids;      // a drawn one ends the sequence and is not kept
  std::vector<std::vector<TokenId>> stop_words;  // completing one ends the sequence; it is kept
  SamplingConfig sampling;      // for the sampler, seed included; here: beams and min_tokens
  OutputConfig output;          // log-probs are put into the news only when asked for
  std::vector<TokenId> drafts;  // its drafts at first, see Scheduler::draft(); none for searches
  bool has_grammar = false;   // its drafts are tokens that a grammar forces: no figure counts them
  std::string cache_salt;     // prefixes are shared only among equal ones
  uint64_t adapter = 0;       // what Limits::max_adapters counts; 0 = none. Part of the salt, too
  int32_t adapter_pages = 0;  // the same for each sequence with the adapter, at most the limit's
  std::optional<KvCacheRetentionConfig> retention;
  float priority = 0.5f;       // higher goes first, then the smaller place
  bool streams_beams = false;  // beams: news after each step, not only at the end
  Time arrival;
  std::optional<Time> deadline;  // then it ends with kTimedOut; see Scheduler::expire
  std::shared_ptr<const Payload> payload;
};

// Owned by the Scheduler, which alone changes it; exec and the sampler read it on the engine thread
// while they launch.
class Sequence {
 public:
  // `limit`: tokens at which it ends with kLength, prompt included. `place`: see
  // Scheduler::place_of(). `worst_blocks`: by group, see worst_case_blocks() in capacity.h.
  Sequence(SequenceSpec spec, int32_t limit, int32_t tokens_per_block, uint64_t place,
           std::vector<int32_t> worst_blocks = {});

  RequestId id() const { return spec_.id; }
  // Prompt, then what the host knows of the output (of one beam).
  std::span<const TokenId> tokens(int32_t beam = 0) const {
    return beams_.live.empty() ? tokens_ : beams_.live[beam].tokens;
  }
  int32_t num_prompt() const { return num_prompt_; }
  int32_t num_generated() const { return static_cast<int32_t>(tokens().size()) - num_prompt_; }
  const SamplingConfig& sampling() const { return spec_.sampling; }
  const SequenceSpec& spec() const { return spec_; }  // without its prompt
  int32_t beam_width() const { return spec_.sampling.beam_width; }
  std::span<const BlockId> block_table(int32_t beam = 0, size_t group = 0) const {
    return lanes_[beam].table.groups[group].blocks;
  }
  // Guesses of what comes after tokens(); see Scheduler::draft().
  std::span<const TokenId> drafts() const { return drafts_; }
  std::span<const int32_t> draft_parents() const { return draft_parents_; }
  // Its next row that samples may have drafts, and has none yet.
  bool may_draft() const { return !draining() && !pools() && !searches() && num_host_rows_ == 0; }
  bool awaits_adapter() const { return awaits_adapter_; }
  bool has_unknown() const { return unknown_ > 0; }  // tokens that only the device knows
  // Tokens of all its beams that the next plan computes if it has room; without drafts.
  int32_t num_pending() const {
    if (draining() || arriving_ || awaits_adapter_ || holds_ > 0 || at_limit() ||
        num_host_rows_ > 0)
      return 0;
    return (length() - computed_) * num_lanes();
  }
  const RequestMetrics& metrics() const { return metrics_; }

 private:
  friend class Scheduler;

  // The memory of one beam; a sequence without beams has one.
  struct Lane {
    BlockTable table;  // empty unless running
    int32_t slot = -1;
  };

  // Tokens that exist, on the host or only on the device; `computed_` chases it.
  int32_t length() const { return static_cast<int32_t>(tokens().size()) + unknown_; }
  bool at_limit() const { return length() >= limit_; }
  bool running() const { return lanes_[0].slot >= 0; }
  bool draining() const { return stopped_ || preempted_; }
  bool pools() const { return spec_.output.pooling.has_value(); }
  bool searches() const { return beam_width() > 1; }
  // Lanes that have a row in each step: the live beams, or one until the prompt is computed.
  int32_t num_lanes() const {
    return beams_.live.empty() ? 1 : static_cast<int32_t>(beams_.live.size());
  }
  // Whether it still needs logits or hidden states of every position of its prompt.
  bool wants_all_logits() const {
    const OutputConfig& o = spec_.output;
    return (o.return_context_logits || o.num_prompt_log_probs || o.pooling == Pooling::kMean) &&
           computed_ < num_prompt_ && logits_done_ < num_prompt_;
  }
  // Each of its prompt's positions takes the engine some time for each token of the vocabulary.
  bool scores_prompt() const {
    return spec_.output.num_prompt_log_probs.has_value() && wants_all_logits();
  }
  // Higher priority first, then the smaller place.
  bool before(const Sequence& other) const {
    if (spec_.priority != other.spec_.priority) return spec_.priority > other.spec_.priority;
    return place_ < other.place_;
  }

  // Takes one drawn token; returns whether it was kept, and sets reason_ when it ends the sequence.
  // End id before stop word before length.
  bool append(TokenId token);
  // `token` is the next one: drafts that do not begin with it are forgotten, and so is a tree.
  void check_drafts(TokenId token);
  bool completes_stop_word() const;

  BeamRules beam_rules() const;
  void forget_beams();  // back to the prompt

  // Keys of all full blocks of known tokens (beams: of the prompt); each is hashed once.
  std::span<const BlockKey> keys();
  Contents contents();  // of lane 0

  const int32_t num_prompt_;
  std::vector<TokenId> tokens_;  // begins as the prompt, grows in commit(); beams: stays the prompt
  const SequenceSpec spec_;      // without its prompt
  const int32_t limit_;
  const std::vector<int32_t> worst_blocks_;
  const int32_t tokens_per_block_;
  const uint64_t place_;
  std::vector<TokenId> drafts_;
  std::vector<int32_t> draft_parents_;
  std::vector<BlockKey> keys_;  // grows in keys()
  BeamState beams_;             // live: empty without beams, and until the prompt is computed
  std::vector<std::vector<TokenLogProb>> candidates_;  // beams: of the step that is coming in

  std::vector<Lane> lanes_;  // [beam_width]; slots are held exactly while running
  int32_t computed_ = 0;     // positions whose KV is written or planned, 0 after release
  int32_t committed_ = 0;    // of those, whose rows have been committed
  int32_t unknown_ = 0;      // drawn tokens that only the device knows; plan() adds, commit() takes
  int32_t inflight_ = 0;     // rows planned and not yet committed; memory is held until it is 0
  int32_t num_host_rows_ = 0;  // of those, rows that need the host
  int32_t num_guessed_ = 0;    // of computed_, positions of drafts whose row is in flight
  int32_t logits_done_ = 0;    // positions whose context logits have been committed
  uint64_t planned_at_ = 0;    // serial of the last plan it has a row in
  int32_t planned_from_ = 0;   // and where that row starts
  int32_t announced_from_ = 0, announced_to_ = 0;  // blocks it has said to be computing
  int32_t onboarded_ = 0;                          // blocks brought back from the host pool
  bool arriving_ = false;                          // some of its blocks are on their way from there
  bool awaits_adapter_ = false;                    // see Scheduler::set_adapter_check()
  int32_t holds_ = 0;       // calls of Scheduler::hold() that were not released
  BlockKey awaited_ = 0;    // the block that another one computes and that it waits for
  int32_t num_delays_ = 0;  // plans in which it waited for one
  bool started_ = false;    // was admitted at least once
  bool preempted_ =
      false;              // gives its memory back as soon as nothing is in flight, then waits again
  bool suspect_ = false;  // what is in flight and in its blocks is not to be used
  bool stopped_ = false;  // its final news is out; released as soon as nothing is in flight
  bool failed_ = false;   // stopped by an error: its blocks are not to be found again
  FinishReason reason_ = FinishReason::kNotFinished;  // set by append() or when stopped
  RequestMetrics
      metrics_;  // arrival, first_scheduled and the counts; token times belong to the outbox
};

}  // namespace nereid::sched
