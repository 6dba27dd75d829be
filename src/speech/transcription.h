// Transcribes one stretch of a recording, window by window: asks for passes of the model, and is
// given their results. Engine, threads and sound are its caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "speech/alignment.h"
#include "speech/features/log_mel.h"
#include "speech/transcript.h"
#include "speech/vocabulary.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::speech {

// Tokens that may come next in a pass; the engine keeps them (Request::timestamp_rules).
// Vocabulary: text tokens, then the end of text, then other special tokens, then time stamps from
// `first_timestamp` to the last id, 20 ms apart. Source: "Robust Speech Recognition via Large-Scale
// Weak Supervision" (Radford et al.), appendix, and the decoding of its published program.
struct TokenRules {
  int32_t end = 0;                    // the end of text
  int32_t first_timestamp = -1;       // <|0.00|>; -1: no rules of time stamps
  int32_t no_timestamps = -1;         // never drawn where there are time stamps; -1: none
  int32_t most_first_timestamp = -1;  // index of the latest one that begins a transcript; -1: any
  std::vector<int32_t> suppressed;    // never drawn
  std::vector<int32_t> suppressed_first;  // not drawn as the first token

  bool has_timestamps() const { return first_timestamp >= 0; }
};

// A served speech model, as a transcription needs it. Immutable.
struct SpeechModel {
  Vocabulary vocabulary;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  int64_t max_tokens = 448;               // prompt and output of the decoder
  int64_t window_frames = kWindowFrames;  // of an input of the encoder: twice its positions
  std::vector<int32_t> suppressed, suppressed_first;  // of its generation_config.json
  int32_t most_first_timestamp = 50;  // index: a transcript begins in its first second
  bool has_rules = true;  // the engine keeps TokenRules; without, no time stamps are asked for
};

struct TranscriptionOptions {
  std::string language;         // code, of the model's; "" only for models of one language
  bool translates = false;      // into English
  std::vector<int32_t> prompt;  // prompt_tokens() of a text that stands before the recording's
  // Tried in turn until a window's result is good enough.
  std::vector<double> temperatures = {0, 0.2, 0.4, 0.6, 0.8, 1};
  double most_compression = 2.4, least_log_prob = -1, most_no_speech = 0.6;
  bool uses_previous_text = true;  // as the prompt of the next window
  bool wants_no_speech = false;    // of every window, also where nothing depends on it
  bool wants_words = false;
  int num_beams = 1;           // at temperature 0; warmer ones draw
  int64_t begin = 0, end = 0;  // frames of the recording
};

enum class PassKind : uint8_t {
  kDecode,    // continue the prompt up to the end of text
  kScoreOne,  // one token, of `allowed`, with its log-probability of all tokens
  kAlign,     // the prompt's log-probabilities and attention, no new token
};

// A pass of the model.
struct Pass {
  PassKind kind = PassKind::kDecode;
  int64_t seek = 0, num_frames = 0;  // of the recording
  Features::Behind behind = Features::Behind::kZeros;
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  double temperature = 0;
  int num_beams = 1;  // of a search, at temperature 0
  TokenRules rules = {};
  std::vector<int32_t> allowed = {};
};

struct PassResult {
  std::vector<int32_t> tokens;  // without the end of text
  // Natural, of the tokens and of the end of text where that was drawn; of kAlign of the prompt's
  // tokens but the first.
  std::vector<float> log_probs;
  Attention attention = {};  // of kAlign
};

// The pass that finds the language: its token is the language's.
Pass language_pass(const SpeechModel& model, int64_t num_frames);

// The last tokens of `text` that a prompt has room for. InvalidArgument: it cannot be encoded.
StatusOr<std::vector<int32_t>> prompt_tokens(const SpeechModel& model, std::string_view text);

class Transcription {
 public:
  // `model` must outlive it. InvalidArgument: not a language of the model, or it cannot translate.
  static StatusOr<Transcription> create(const SpeechModel& model, TranscriptionOptions options);

  // The next pass; nullopt when all is transcribed. The same until take().
  const std::optional<Pass>& next() const { return pass_; }
  // The result of that pass. An error for one that does not fit it.
  Status take(PassResult result);

  // Segments so far; they stay.
  const std::vector<Segment>& segments() const { return segments_; }
  const TranscriptionOptions& options() const { return options_; }

 private:
  // A window's result at one temperature.
  struct Attempt {
    PassResult result;
    std::string text;  // without blanks around it
    double temperature = 0, mean_log_prob = 0, compression = 0;
  };
  Transcription(const SpeechModel& model, TranscriptionOptions options)
      : model_(&model), options_(std::move(options)) {}

  std::vector<int32_t> task_tokens(bool with_timestamps) const;
  TokenRules rules() const;
  void begin_window();  // or the end
  void ask_decode();
  void ask_no_speech();
  void ask_alignment();
  void take_attempt(PassResult result);
  void judge();
  void accept();
  Status take_words(PassResult result);
  void end_window();
  Segment segment_of(const struct TokenSpan& span) const;

  const SpeechModel* model_;
  TranscriptionOptions options_;
  std::vector<int32_t> history_;  // the prompt's tokens, then those of segments
  size_t history_begin_ = 0;      // tokens before it are no longer prompted
  std::vector<Segment> segments_;
  double last_speech_ = 0;
  int64_t num_windows_ = 0;

  // The window.
  int64_t seek_ = 0, num_frames_ = 0, advance_ = 0;
  bool is_silent_behind_ = false;
  size_t attempt_number_ = 0;
  Attempt attempt_;
  std::optional<double> no_speech_;
  std::vector<Segment> found_;

  std::optional<Pass> pass_;
};

}  // namespace nereid::speech
