// Updates of sequences, from the engine to a sink.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "nereid/response.h"
#include "sched/update.h"

namespace nereid::runtime {

struct PromptScores;

// Changes of one sequence by a step, or at its end.
struct EngineUpdate {
  sched::SequenceUpdate row;
  std::vector<float> generation_logits;  // f32 [row.tokens, vocab]; empty unless asked for
  // f32 [prompt, vocab], with or before the first token; null unless asked for
  std::shared_ptr<const std::vector<float>> context_logits;
  // The same for the prompt's scores; what comes behind them waits until they are done.
  std::shared_ptr<const PromptScores> prompt_scores;
  std::shared_ptr<const AttentionScores> attention_scores;  // see context_logits
  std::shared_ptr<const EncoderOutput> encoder_output;      // see context_logits
  std::vector<float> embedding;  // with the last update of a sequence that is pooled
};

// Updates of one turn of the engine loop, in the order of events.
struct UpdateBatch {
  Time time;  // when the host learned the tokens
  std::vector<EngineUpdate> updates;
};

// Takes the engine's updates. Called on the engine's thread.
class UpdateSink {
 public:
  virtual ~UpdateSink() = default;

  virtual void post(UpdateBatch batch) = 0;

  // An empty list for the engine to fill, whose memory was that of a batch posted before or of a
  // list that was kept, if there is one.
  virtual std::vector<EngineUpdate> take_list() = 0;
  virtual void keep_list(std::vector<EngineUpdate> list) = 0;
};

}  // namespace nereid::runtime
