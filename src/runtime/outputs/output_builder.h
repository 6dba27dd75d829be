// Output of one sequence: from updates to the lists of a response.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "runtime/outputs/outbox.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace nereid::runtime {

// Owned by the outbox thread. `subscription` must outlive it.
class OutputBuilder {
 public:
  OutputBuilder(const Subscription& subscription,
                const std::shared_ptr<const text::Tokenizer>& tokenizer);

  // Adds an update. A stop string's last token ends the output (kStopWords); the rest is dropped.
  void add(EngineUpdate& update, Time time);

  // Whether there is something to stream: new tokens since take(), or longer beams.
  bool grown() const { return grown_; }
  bool over() const { return reason_ != FinishReason::kNotFinished; }
  bool stopped_by_text() const { return stopped_by_text_; }

  // Outputs of the next response: one, or one per returned beam. Streaming without
  // Subscription::whole: the tokens since the last call; else all tokens. After kCancelled or
  // kTimedOut: no generated tokens.
  std::vector<SequenceOutput> take();

  // Sum of log-probabilities; -infinity after kCancelled or kTimedOut.
  float score() const;
  const RequestMetrics& metrics() const { return metrics_; }

 private:
  void add_token(EngineUpdate& update, size_t index);
  void add_beams(std::vector<sched::BeamUpdate>& beams, bool finished);
  bool completes_stop_string(TokenId token);
  bool cut_off() const {
    return reason_ == FinishReason::kCancelled || reason_ == FinishReason::kTimedOut;
  }
  std::vector<SequenceOutput> take_beams();

  const Subscription& subscription_;
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  SequenceOutput kept_;  // tokens of the next response, without the echoed prompt
  std::vector<sched::BeamUpdate> beams_;
  size_t longest_ = 0;       // of the kept beams
  int32_t num_output_ = 0;   // tokens so far
  double cum_log_prob_ = 0;  // of those tokens
  bool echoed_ = false;
  bool grown_ = false;
  bool stopped_by_text_ = false;
  FinishReason reason_ = FinishReason::kNotFinished;
  RequestMetrics metrics_;
};

}  // namespace nereid::runtime
