// The forms of /v1/audio/transcriptions and /v1/audio/translations as checked values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "front/openai/requests/requests.h"

namespace nereid::front {

enum class AudioTask : uint8_t { kTranscribe, kTranslate };
enum class AudioFormat : uint8_t { kJson, kText, kSrt, kVerboseJson, kVtt };

struct AudioRequest {
  CommonOptions common;
  AudioTask task = AudioTask::kTranscribe;
  std::string_view file;  // the bytes of the sound file, into the body
  std::string language;   // code; "": as the model finds it
  std::string prompt;     // text that stands before the recording's; may be empty
  AudioFormat format = AudioFormat::kJson;
  double temperature = 0;  // 0: warmer ones are tried where the result is poor
  int num_beams = 1;       // of a search at temperature 0
  bool wants_words = false, wants_segments = true;  // of kVerboseJson
  bool wants_log_probs = false;
  bool in_parts = false;  // cut at pauses, the parts transcribed independently
};

// `content_type`: of the header. `body` must outlive the request. A 400 names field, value and what
// is allowed; fields given twice are one, unless they are lists.
Parsed<AudioRequest> parse_audio_request(AudioTask task, std::string_view content_type,
                                         std::string_view body);

}  // namespace nereid::front
