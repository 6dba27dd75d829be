// Log-probabilities of prompts from the logits of steps, so that a prompt's logits need not be
// kept. The engine thread copies logits; the scorer's thread does the rest.
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

// Log-probabilities of one prompt. Other members may be read once `done`.
struct PromptScores {
  std::atomic<bool> done = false;
  Status status;  // Internal: logits not finite
  PromptLogProbs values;
};

class PromptScorer : public StepModule {
 public:
  // `on_done(id)` is called on the scorer's thread when the scores returned by add() are done.
  explicit PromptScorer(std::function<void(RequestId)> on_done) : on_done_(std::move(on_done)) {}
  ~PromptScorer() override;  // scores what was added, then joins
  PromptScorer(const PromptScorer&) = delete;
  PromptScorer& operator=(const PromptScorer&) = delete;

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { open_.erase(id); }
  bool empty() const override { return open_.empty(); }

  // The logits of a row with all of them are f32 [num_tokens, vocab]. A position that comes again,
  // as after a preemption, takes the place of what it gave before. The row that ends the prompt
  // sets the update' scores. Waits while much is to be scored. ResourceExhausted: no memory.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;

 private:
  static constexpr size_t kMostJobs = 2;  // waiting jobs, each with a copy of its logits

  struct Job {
    std::shared_ptr<PromptScores> scores;
    size_t position = 0;        // of the first row of logits
    std::vector<TokenId> next;  // the token behind each position
    std::vector<float> logits;  // f32 [next, vocab] or more
    size_t vocab = 0;
    std::optional<RequestId> ends;  // set in the last job of its prompt
  };

  void push(Job job);
  void run();
  void score(Job& job);

  const std::function<void(RequestId)> on_done_;
  absl::flat_hash_map<RequestId, std::shared_ptr<PromptScores>> open_;
  std::mutex mutex_;  // guards the next two members
  std::deque<Job> jobs_;
  bool closed_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // started by the first job
};

// Maximum number of scored positions per step, at least 1: 4 Mi logits, so that long prompts are
// interleaved with other sequences' steps.
int32_t most_scored_tokens(int32_t vocab_size);

// Upper bound of the bytes of a prompt's log-probabilities.
int64_t prompt_log_prob_bytes(int64_t num_prompt, int32_t num_top);

}  // namespace nereid::runtime
