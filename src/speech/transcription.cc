// The rules of the reference's loop over windows: transcribe.py and decoding.py of openai/whisper.
#include "speech/transcription.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "speech/window.h"

namespace nereid::speech {
namespace {

// Above it, an attempt's text is no prompt for the next window.
constexpr double kUnsureTemperature = 0.5;

double mean_of(const std::vector<float>& log_probs, size_t count) {
  double sum = 0;
  for (const float x : log_probs) sum += x;
  return sum / static_cast<double>(count);
}

// Tokens of the text before a window that its prompt has room for.
int64_t most_prompt_tokens(const SpeechModel& model) {
  return std::max<int64_t>(model.max_tokens / 2 - 1, 0);
}

}  // namespace

Pass language_pass(const SpeechModel& model, int64_t num_frames) {
  Pass pass = {.kind = PassKind::kScoreOne,
               .num_frames = std::min(num_frames, model.window_frames),
               .behind = Features::Behind::kSilence,
               .prompt = {model.vocabulary.start},
               .max_tokens = 1};
  for (const auto& [_, id] : model.vocabulary.languages) pass.allowed.push_back(id);
  return pass;
}

StatusOr<std::vector<int32_t>> prompt_tokens(const SpeechModel& model, std::string_view text) {
  const std::string_view words = stripped(text);
  if (words.empty()) return std::vector<int32_t>();
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                   model.tokenizer->encode(" " + std::string(words),
                                           {.add_special_tokens = false, .parse_special = false}));
  const std::ptrdiff_t most = most_prompt_tokens(model);
  if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most);
  return tokens;
}

StatusOr<Transcription> Transcription::create(const SpeechModel& model,
                                              TranscriptionOptions options) {
  const Vocabulary& vocabulary = model.vocabulary;
  if (vocabulary.is_multilingual() && !vocabulary.language_id(options.language))
    return invalid_argument("the model does not have the language '{}'", options.language);
  if (options.translates && vocabulary.translate < 0)
    return invalid_argument("the model knows English alone, so it translates nothing");
  Transcription out(model, std::move(options));
  out.history_ = std::move(out.options_.prompt);
  out.seek_ = out.options_.begin;
  out.begin_window();
  return out;
}

std::vector<int32_t> Transcription::task_tokens(bool with_timestamps) const {
  const Vocabulary& vocabulary = model_->vocabulary;
  std::vector<int32_t> out = {vocabulary.start};
  if (vocabulary.is_multilingual()) {
    out.push_back(*vocabulary.language_id(options_.language));
    out.push_back(options_.translates ? vocabulary.translate : vocabulary.transcribe);
  }
  if (!with_timestamps) out.push_back(vocabulary.no_timestamps);
  return out;
}

TokenRules Transcription::rules() const {
  const Vocabulary& vocabulary = model_->vocabulary;
  TokenRules out = {.end = vocabulary.end,
                    .suppressed = vocabulary.never_drawn(),
                    .suppressed_first = model_->suppressed_first};
  out.suppressed.insert(out.suppressed.end(), model_->suppressed.begin(), model_->suppressed.end());
  if (!model_->has_rules) return out;
  out.first_timestamp = vocabulary.first_timestamp;
  out.no_timestamps = vocabulary.no_timestamps;
  out.most_first_timestamp = model_->most_first_timestamp;
  return out;
}

void Transcription::begin_window() {
  pass_.reset();
  if (seek_ >= options_.end) return;
  num_frames_ = std::min(model_->window_frames, options_.end - seek_);
  ++num_windows_;
  attempt_number_ = 0;
  no_speech_.reset();
  ask_decode();
}

void Transcription::ask_decode() {
  Pass pass = {.seek = seek_, .num_frames = num_frames_};
  const int64_t half = model_->max_tokens / 2;
  const auto most = static_cast<size_t>(most_prompt_tokens(*model_));
  const std::span<const int32_t> previous = std::span(history_).subspan(history_begin_);
  if (!previous.empty() && most > 0) {
    pass.prompt.push_back(model_->vocabulary.start_of_previous);
    const auto last = previous.last(std::min(most, previous.size()));
    pass.prompt.insert(pass.prompt.end(), last.begin(), last.end());
  }
  const std::vector<int32_t> task = task_tokens(model_->has_rules);
  pass.prompt.insert(pass.prompt.end(), task.begin(), task.end());
  pass.max_tokens =
      std::max<int64_t>(1, std::min(half, model_->max_tokens - std::ssize(pass.prompt)));
  pass.temperature = options_.temperatures[attempt_number_];
  pass.num_beams = pass.temperature == 0 ? options_.num_beams : 1;
  pass.rules = rules();
  pass_ = std::move(pass);
}

// The probability of silence is that of its token where the transcript's language would stand.
void Transcription::ask_no_speech() {
  Pass pass = std::move(*pass_);
  const auto start = std::ranges::find(pass.prompt, model_->vocabulary.start);
  pass.prompt.erase(start + 1, pass.prompt.end());
  pass.kind = PassKind::kScoreOne;
  pass.max_tokens = 1;
  pass.temperature = 0;
  pass.num_beams = 1;
  pass.rules = {};
  pass.allowed = {model_->vocabulary.no_speech};
  pass_ = std::move(pass);
}

void Transcription::ask_alignment() {
  Pass pass = {.kind = PassKind::kAlign, .seek = seek_, .num_frames = num_frames_};
  pass.prompt = task_tokens(/*with_timestamps=*/false);
  for (const Segment& segment : found_)
    for (const int32_t id : segment.tokens)
      if (model_->vocabulary.is_text(id)) pass.prompt.push_back(id);
  pass.prompt.push_back(model_->vocabulary.end);
  pass_ = std::move(pass);
}

Status Transcription::take(PassResult result) {
  const PassKind kind = pass_->kind;
  const int32_t vocab = model_->tokenizer->vocab_size();
  for (const int32_t id : result.tokens)
    if (id < 0 || (id >= vocab && !model_->vocabulary.is_timestamp(id)))
      return internal_error("the model gave the token {}, and its tokenizer has {}", id, vocab);
  if (kind == PassKind::kAlign) return take_words(std::move(result));
  if (kind == PassKind::kScoreOne) {
    if (result.log_probs.empty()) return internal_error("the model gave no log-probability");
    no_speech_ = std::exp(static_cast<double>(result.log_probs[0]));
    judge();
    return ok();
  }
  take_attempt(std::move(result));
  return ok();
}

void Transcription::take_attempt(PassResult result) {
  const auto drawn = std::ranges::find(result.tokens, model_->vocabulary.end);
  result.tokens.erase(drawn, result.tokens.end());
  attempt_ = {.temperature = pass_->temperature};
  std::vector<int32_t> text;
  for (const int32_t id : result.tokens)
    if (model_->vocabulary.is_text(id)) text.push_back(id);
  attempt_.text = std::string(stripped(model_->tokenizer->decode(text, true)));
  attempt_.compression = compression_ratio(attempt_.text);
  attempt_.mean_log_prob = mean_of(result.log_probs, result.tokens.size() + 1);
  attempt_.result = std::move(result);
  // Silence matters to results that are unlikely.
  const bool matters =
      options_.wants_no_speech || attempt_.mean_log_prob <= options_.least_log_prob;
  if (matters && !no_speech_ && model_->vocabulary.no_speech >= 0)
    ask_no_speech();
  else
    judge();
}

void Transcription::judge() {
  const bool repeats = attempt_.compression > options_.most_compression;
  const bool is_unlikely = attempt_.mean_log_prob < options_.least_log_prob;
  const bool is_silence = no_speech_.value_or(0) > options_.most_no_speech;
  if ((repeats || is_unlikely) && !(is_silence && is_unlikely) &&
      attempt_number_ + 1 < options_.temperatures.size()) {
    ++attempt_number_;
    ask_decode();
    return;
  }
  found_.clear();
  advance_ = num_frames_;
  is_silent_behind_ = true;
  if (is_silence && attempt_.mean_log_prob <= options_.least_log_prob) return end_window();
  accept();
}

void Transcription::accept() {
  const WindowCut cut = cut_window(attempt_.result.tokens, num_frames_, model_->vocabulary);
  // A model that keeps going back would take forever: then windows are passed over whole.
  const int64_t num_whole = (options_.end - options_.begin) / model_->window_frames + 1;
  advance_ = num_windows_ > 64 + 8 * num_whole ? num_frames_ : cut.advance;
  is_silent_behind_ = cut.is_silent_behind;
  bool has_text = false;
  for (const TokenSpan& span : cut.segments) {
    found_.push_back(segment_of(span));
    for (const int32_t id : found_.back().tokens) has_text |= model_->vocabulary.is_text(id);
  }
  if (options_.wants_words && has_text)
    ask_alignment();
  else
    end_window();
}

Segment Transcription::segment_of(const TokenSpan& span) const {
  const PassResult& result = attempt_.result;
  const double offset = static_cast<double>(seek_) / kFramesPerSecond;
  Segment out = {.seek = seek_,
                 .start = offset + span.start,
                 .end = offset + span.stop,
                 .temperature = attempt_.temperature,
                 .mean_log_prob = attempt_.mean_log_prob,
                 .compression_ratio = attempt_.compression,
                 .no_speech_prob = no_speech_.value_or(0)};
  const auto part = [&](const auto& values) {
    const size_t end = std::min(span.end, values.size());
    return std::vector(values.begin() + static_cast<int64_t>(std::min(span.begin, end)),
                       values.begin() + static_cast<int64_t>(end));
  };
  out.tokens = part(result.tokens);
  out.log_probs = part(result.log_probs);
  std::vector<int32_t> text;
  for (const int32_t id : out.tokens)
    if (model_->vocabulary.is_text(id)) text.push_back(id);
  out.text = model_->tokenizer->decode(text, true);
  return out;
}

Status Transcription::take_words(PassResult result) {
  const std::vector<int32_t>& prompt = pass_->prompt;
  if (result.log_probs.size() + 1 != prompt.size())
    return internal_error("the model gave {} log-probabilities of {} tokens",
                          result.log_probs.size(), prompt.size());
  // The token in front of the first word stands for the time before it.
  const auto num_task = static_cast<int64_t>(task_tokens(false).size());
  const auto last = std::ssize(prompt) - 1;
  ASSIGN_OR_RETURN(const std::vector<double> times,
                   token_times(std::move(result.attention), num_task - 1, last, num_frames_));
  const std::span<const int32_t> tokens = std::span(prompt).subspan(
      static_cast<size_t>(num_task), static_cast<size_t>(last - num_task));
  const auto decode = [this](std::span<const int32_t> ids) {
    return model_->tokenizer->decode(ids, true);
  };
  std::vector<Word> words;
  size_t at = 0;
  for (TokenWord& found : split_words(tokens, decode, has_spaces(options_.language))) {
    Word word{.text = std::move(found.text), .start = times[at], .tokens = std::move(found.tokens)};
    double sum = 0;
    for (size_t i = 0; i < word.tokens.size(); ++i)
      sum += std::exp(
          static_cast<double>(result.log_probs[at + i + static_cast<size_t>(num_task) - 1]));
    word.probability = sum / static_cast<double>(word.tokens.size());
    at += word.tokens.size();
    word.end = times[at];
    words.push_back(std::move(word));
  }
  const double offset = static_cast<double>(seek_) / kFramesPerSecond;
  add_words(std::move(words), offset, model_->vocabulary, found_, last_speech_);
  double last_end = found_.back().end;
  for (const Segment& segment : found_)
    last_end = segment.words.empty() ? last_end : segment.words.back().end;
  if (!is_silent_behind_ && last_end > offset)
    advance_ = std::max<int64_t>(1, std::llround(last_end * kFramesPerSecond) - seek_);
  end_window();
  return ok();
}

void Transcription::end_window() {
  for (Segment& segment : found_) {
    if (segment.start == segment.end || stripped(segment.text).empty()) {
      segment.text.clear();
      segment.tokens.clear(), segment.log_probs.clear(), segment.words.clear();
    }
    history_.insert(history_.end(), segment.tokens.begin(), segment.tokens.end());
    segments_.push_back(std::move(segment));
  }
  found_.clear();
  if (!options_.uses_previous_text || attempt_.temperature > kUnsureTemperature)
    history_begin_ = history_.size();
  seek_ += std::max<int64_t>(advance_, 1);
  begin_window();
}

}  // namespace nereid::speech
