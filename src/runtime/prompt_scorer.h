// Makes log-probabilities of prompts from the logits that steps bring, so that the logits
// of a whole prompt need not be kept. The engine's thread copies them; a thread of the scorer does
// the rest.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/response.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

// Log-probabilities of one prompt. The other members may be read once `done`.
struct PromptScores {
  std::atomic<bool> done = false;
  Status status;  // Internal: the logits of a position are not finite
  PromptLogProbs values;
};

class PromptScorer : public StepModule {
 public:
  // `on_done(id)` is called by the scorer's thread when the scores that news brought are done.
  explicit PromptScorer(std::function<void(RequestId)> on_done) : on_done_(std::move(on_done)) {}
  ~PromptScorer() override;  // scores what was added, then joins
  PromptScorer(const PromptScorer&) = delete;
  PromptScorer& operator=(const PromptScorer&) = delete;

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { open_.erase(id); }
  bool empty() const override { return open_.empty(); }

  // The logits of a row with all of them are f32 [num_tokens, vocab]. A position that comes again,
  // as after a preemption, takes the place of what it gave before. The row that ends the prompt
  // sets the news' scores. Waits while much is to be scored. ResourceExhausted: no memory.
  Status landed(const LandedRow& landed, SequenceNews& news) override;

 private:
  static constexpr size_t kMostJobs = 2;  // that wait, with copies of their logits

  struct Job {
    std::shared_ptr<PromptScores> scores;
    size_t position = 0;        // the first one
    std::vector<TokenId> next;  // what followed each position
    std::vector<float> logits;  // f32 [next, vocab] or more
    size_t vocab = 0;
    std::optional<RequestId> ends;  // the sequence, if that is all of its prompt
  };

  void push(Job job);
  void run();
  void score(Job& job);

  const std::function<void(RequestId)> on_done_;
  absl::flat_hash_map<RequestId, std::shared_ptr<PromptScores>> open_;
  std::mutex mutex_;  // guards the two below
  std::deque<Job> jobs_;
  bool closed_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // from the first job on
};

// Positions that are scored per step at most, at least one: 4 Mi logits, so that steps of others
// run between the pieces of a long prompt.
int32_t most_scored_tokens(int32_t vocab_size);

// Most bytes that the log-probabilities of a prompt take.
int64_t prompt_log_prob_bytes(int64_t num_prompt, int32_t num_top);

}  // namespace nereid::runtime
