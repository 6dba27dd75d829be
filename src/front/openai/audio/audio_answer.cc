#include "front/openai/audio/audio_answer.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "front/http/json_text.h"
#include "speech/languages.h"
#include "text/unicode/utf8.h"

namespace nereid::front {
namespace {

// Beyond -9999 a log-probability is as good as none, and JSON has no infinity.
constexpr double kLeastLogProb = -9999;

double finite(double x) { return std::isfinite(x) ? x : kLeastLogProb; }
double thousandths(double x) { return std::round(x * 1000) / 1000; }

json::object usage_of(const Transcript& transcript) {
  return {{"type", "duration"}, {"seconds", static_cast<int64_t>(std::ceil(transcript.seconds))}};
}

json::array log_probs_of(const ServedSpeech& speech, std::span<const speech::Segment> segments) {
  json::array out;
  for (const speech::Segment& segment : segments)
    for (size_t i = 0; i < std::min(segment.tokens.size(), segment.log_probs.size()); ++i) {
      const int32_t id = segment.tokens[i];
      if (!speech.model.vocabulary.is_text(id)) continue;
      const std::string_view bytes = speech.model.tokenizer->token_bytes(id);
      json::array numbers;
      for (const char c : bytes) numbers.push_back(static_cast<uint8_t>(c));
      out.push_back(json::object{{"token", text::repair_utf8(bytes)},
                                 {"logprob", finite(segment.log_probs[i])},
                                 {"bytes", std::move(numbers)}});
    }
  return out;
}

json::array segments_of(const Transcript& transcript) {
  json::array out;
  for (const speech::Segment& s : transcript.segments) {
    out.push_back(json::object{{"id", out.size()},
                               {"seek", s.seek},
                               {"start", thousandths(s.start)},
                               {"end", thousandths(s.end)},
                               {"text", s.text},
                               {"tokens", json::array(s.tokens.begin(), s.tokens.end())},
                               {"temperature", s.temperature},
                               {"avg_logprob", finite(s.mean_log_prob)},
                               {"compression_ratio", s.compression_ratio},
                               {"no_speech_prob", s.no_speech_prob}});
  }
  return out;
}

json::array words_of(const Transcript& transcript) {
  json::array out;
  for (const speech::Segment& segment : transcript.segments)
    for (const speech::Word& word : segment.words)
      out.push_back(json::object{{"word", speech::stripped(word.text)},
                                 {"start", thousandths(word.start)},
                                 {"end", thousandths(word.end)}});
  return out;
}

std::string verbose_json(const AudioRequest& request, const Transcript& transcript) {
  const speech::Language* const language = speech::find_language(transcript.language);
  json::object out = {{"task", request.task == AudioTask::kTranslate ? "translate" : "transcribe"},
                      {"language", language ? language->name : "english"},
                      {"duration", thousandths(transcript.seconds)},
                      {"text", speech::text_of(transcript.segments)}};
  if (request.wants_segments) out["segments"] = segments_of(transcript);
  if (request.wants_words) out["words"] = words_of(transcript);
  out["usage"] = usage_of(transcript);
  return json_text(out);
}

std::string event_of(const json::object& event) { return "data: " + json_text(event) + "\n\n"; }

}  // namespace

std::string content_type_of(AudioFormat format) {
  const bool is_json = format == AudioFormat::kJson || format == AudioFormat::kVerboseJson;
  return is_json ? "application/json" : "text/plain; charset=utf-8";
}

std::string answer_of(const AudioRequest& request, const ServedSpeech& speech,
                      const Transcript& transcript) {
  switch (request.format) {
    case AudioFormat::kText:
      return speech::text_of(transcript.segments) + "\n";
    case AudioFormat::kSrt:
      return speech::srt_of(transcript.segments);
    case AudioFormat::kVtt:
      return speech::vtt_of(transcript.segments);
    case AudioFormat::kVerboseJson:
      return verbose_json(request, transcript);
    case AudioFormat::kJson:
      break;
  }
  json::object out = {{"text", speech::text_of(transcript.segments)}};
  if (request.wants_log_probs) out["logprobs"] = log_probs_of(speech, transcript.segments);
  out["usage"] = usage_of(transcript);
  return json_text(out);
}

std::string delta_event(const AudioRequest& request, const ServedSpeech& speech,
                        std::span<const speech::Segment> segments, bool is_first) {
  std::string text;
  for (const speech::Segment& segment : segments) text += segment.text;
  if (is_first) text.erase(0, text.find_first_not_of(" \t\r\n"));
  if (text.empty()) return "";
  json::object out = {{"type", "transcript.text.delta"}, {"delta", text}};
  if (request.wants_log_probs) out["logprobs"] = log_probs_of(speech, segments);
  return event_of(out);
}

std::string done_event(const AudioRequest& request, const ServedSpeech& speech,
                       const Transcript& transcript) {
  json::object out = {{"type", "transcript.text.done"},
                      {"text", speech::text_of(transcript.segments)}};
  if (request.wants_log_probs) out["logprobs"] = log_probs_of(speech, transcript.segments);
  out["usage"] = usage_of(transcript);
  return event_of(out);
}

}  // namespace nereid::front
