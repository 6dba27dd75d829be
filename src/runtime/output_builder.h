// The output of one sequence, from the engine's news to the lists of a response.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "runtime/outbox.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace nereid::runtime {

// Owned by the outbox thread. `subscription` must outlive it.
class OutputBuilder {
 public:
  OutputBuilder(const Subscription& subscription,
                const std::shared_ptr<const text::Tokenizer>& tokenizer);

  // Takes news in. Tokens after the one that completes a stop string are dropped, and the sequence
  // is then over with kStopWords.
  void add(SequenceNews& news, Time time);

  // There is something to stream: tokens since the last take(), or longer beams than ever before.
  bool grown() const { return grown_; }
  bool over() const { return reason_ != FinishReason::kNotFinished; }
  bool stopped_by_text() const { return stopped_by_text_; }

  // The outputs for a response now: one, or one for each returned beam. Streaming without
  // Subscription::whole: what came since the last call; else everything. After kCancelled or
  // kTimedOut without generated tokens.
  std::vector<SequenceOutput> take();

  // Sum of the log-probs of all tokens; minus infinity when cut off by kCancelled or kTimedOut.
  float score() const;
  const RequestMetrics& metrics() const { return metrics_; }

 private:
  void add_token(SequenceNews& news, size_t index);
  void add_beams(std::vector<sched::BeamNews>& beams, bool finished);
  bool completes_stop_string(TokenId token);
  bool cut_off() const {
    return reason_ == FinishReason::kCancelled || reason_ == FinishReason::kTimedOut;
  }
  std::vector<SequenceOutput> take_beams();

  const Subscription& subscription_;
  text::Detokenizer detokenizer_;
  text::StopStrings stops_;
  SequenceOutput kept_;  // of the next response; without the echoed prompt
  std::vector<sched::BeamNews> beams_;
  size_t longest_ = 0;       // of the beams that were kept so far
  int32_t num_output_ = 0;   // tokens so far
  double cum_log_prob_ = 0;  // of them
  bool echoed_ = false;
  bool grown_ = false;
  bool stopped_by_text_ = false;
  FinishReason reason_ = FinishReason::kNotFinished;
  RequestMetrics metrics_;
};

}  // namespace nereid::runtime
