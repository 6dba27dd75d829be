// libFuzzer entry: a line with a Content-Type, then any bytes as a form of the audio routes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "front/http/multipart.h"
#include "front/openai/audio/audio_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::front;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = all.find('\n');
  if (line == std::string_view::npos) return -1;
  const std::string_view type = all.substr(0, line), body = all.substr(line + 1);
  const auto parts = parse_form(type, body);
  if (!parts.ok()) return -1;
  if (parts->size() > kMaxFormParts) std::abort();
  for (const FormPart& part : *parts) {
    const bool is_inside =
        part.body.empty() || (part.body.data() >= body.data() &&
                              part.body.data() + part.body.size() <= body.data() + body.size());
    if (!is_inside || part.name.empty()) std::abort();
  }
  const auto request = parse_audio_request(AudioTask::kTranscribe, type, body);
  return std::holds_alternative<AudioRequest>(request) ? 0 : -1;
}
