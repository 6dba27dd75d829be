// Answers of the audio routes: JSON, text, subtitles and events. Internal to front/openai.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "front/openai/audio/audio_request.h"
#include "front/openai/audio/served_speech.h"
#include "speech/transcript.h"

namespace nereid::front {

struct Transcript {
  std::string language;  // code
  double seconds = 0;    // of the recording
  std::vector<speech::Segment> segments;
};

// The Content-Type of an answer that is sent whole, and its body.
std::string content_type_of(AudioFormat format);
std::string answer_of(const AudioRequest& request, const ServedSpeech& speech,
                      const Transcript& transcript);

// {"type": "transcript.text.delta", ...} with the segments' text; "" without any. `is_first`: no
// text was sent before, so leading blanks are left out.
std::string delta_event(const AudioRequest& request, const ServedSpeech& speech,
                        std::span<const speech::Segment> segments, bool is_first);
// {"type": "transcript.text.done", ...} with all of it.
std::string done_event(const AudioRequest& request, const ServedSpeech& speech,
                       const Transcript& transcript);

}  // namespace nereid::front
