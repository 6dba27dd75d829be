// One request for a transcript: passes of the model one after the other, and of several parts of
// the recording at once. Internal to front/openai.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "front/bridge/inference_call.h"
#include "front/openai/audio/audio_answer.h"
#include "front/openai/audio/audio_request.h"
#include "front/openai/handlers.h"
#include "speech/audio/sound.h"
#include "speech/features/log_mel.h"
#include "speech/transcription.h"

namespace nereid::front {

// A decoded recording, counted in the budget.
struct Recording {
  speech::Sound sound;
  BudgetShare share;
};

class Transcriber : public std::enable_shared_from_this<Transcriber> {
 public:
  // On a worker: reads the whole recording once, for its features.
  static std::variant<std::shared_ptr<Transcriber>, ApiError> create(OpenAiContextPtr context,
                                                                     ExchangePtr exchange,
                                                                     LanguageModelPtr model,
                                                                     AudioRequest request,
                                                                     Recording recording);

  ~Transcriber();

  const LanguageModel& model() const { return *model_; }
  // Encoder positions of the recording, as the prompt's tokens.
  int64_t num_positions() const { return features_->num_frames() / 2; }
  // On the strand.
  void start();

 private:
  // A stretch of the recording, transcribed on its own.
  struct Part {
    std::optional<speech::Transcription> transcription;  // none: the language is looked for
    speech::Pass pass = {};                              // that runs
    speech::PassResult result = {};
    Status status;
    std::shared_ptr<InferenceCall> call = {};
    BudgetShare share = {};  // of the pass's features
    bool is_done = false;
  };

  Transcriber(OpenAiContextPtr context, ExchangePtr exchange, LanguageModelPtr model,
              AudioRequest request, Recording recording);

  const ServedSpeech& speech() const { return **model_->speech; }
  using Parts = std::vector<std::unique_ptr<Part>>;
  // The parts to transcribe in the language. On a worker: reads the whole recording.
  std::variant<Parts, ApiError> make_parts(const std::string& language) const;
  void run_parts();  // starts waiting parts, up to the limit
  void run_pass(size_t index);
  void start_call(size_t index, InferenceSpec spec);
  void take(size_t index, const InferenceReply& reply);
  void retry_or_fail(size_t index, const Status& status);
  void resume_refused();
  void end_pass(size_t index);
  void take_language();
  void advance(size_t index);
  void stream_segments();
  void answer();
  void fail(const ApiError& error);
  void cancel();

  const OpenAiContextPtr context_;
  const ExchangePtr exchange_;
  const LanguageModelPtr model_;
  const AudioRequest request_;
  Recording recording_;
  std::optional<speech::Features> features_;  // of recording_
  std::string language_;                      // once it is known
  std::vector<int32_t> prompt_;               // tokens of request_.prompt
  Parts parts_;
  std::vector<size_t> refused_;  // parts whose pass a full queue has refused
  size_t next_part_ = 0, num_running_ = 0, most_running_ = 8;
  size_t streamed_part_ = 0, streamed_segments_ = 0;  // place in the parts' segments
  bool has_streamed_ = false;
  bool ended_ = false;
};

}  // namespace nereid::front
