#include "front/openai/audio/audio_request.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/json_members.h"
#include "front/http/multipart.h"
#include "speech/languages.h"
#include "text/unicode/utf8.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxFieldBytes = 16 << 10;

constexpr std::pair<std::string_view, AudioFormat> kFormats[] = {
    {"json", AudioFormat::kJson},
    {"text", AudioFormat::kText},
    {"srt", AudioFormat::kSrt},
    {"verbose_json", AudioFormat::kVerboseJson},
    {"vtt", AudioFormat::kVtt}};

// A form's fields, each read once; keeps the first fault.
class FormFields {
 public:
  explicit FormFields(std::vector<FormPart> parts) : parts_(std::move(parts)) {
    is_known_.resize(parts_.size());
  }

  // nullopt: absent or empty, as clients send fields that are not filled in.
  std::optional<std::string_view> text(std::string_view name) {
    const FormPart* const part = find(name);
    if (!part || part->body.empty()) return std::nullopt;
    if (part->body.size() > kMaxFieldBytes) {
      fail(name, fmt::format("has {} bytes; allowed are {}", part->body.size(), kMaxFieldBytes));
      return std::nullopt;
    }
    return part->body;
  }

  // The values of a list: fields NAME or NAME[], each a value or several with commas between them.
  std::vector<std::string_view> list(std::string_view name) {
    std::vector<std::string_view> out;
    for (size_t i = 0; i < parts_.size(); ++i) {
      std::string_view key = parts_[i].name;
      if (key.ends_with("[]")) key.remove_suffix(2);
      if (key != name) continue;
      is_known_[i] = true;
      for (std::string_view rest = parts_[i].body.substr(0, kMaxFieldBytes); !rest.empty();) {
        const size_t end = std::min(rest.find(','), rest.size());
        out.push_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return out;
  }

  std::optional<bool> flag(std::string_view name) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    if (*value == "true" || *value == "True" || *value == "1") return true;
    if (*value != "false" && *value != "False" && *value != "0")
      fail(name, fmt::format("'{}' is not true or false", shown(*value)), "invalid_type");
    return false;
  }

  std::optional<double> number(std::string_view name, double min, double max) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    double number = 0;
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    if (error != std::errc() || stop != end || !(number >= min && number <= max)) {
      fail(name, fmt::format("'{}' is not in [{}, {}]", shown(*value), min, max), kInvalidValue);
      return std::nullopt;
    }
    return number;
  }

  const FormPart* file(std::string_view name) {
    const FormPart* const part = find(name);
    if (part == nullptr)
      fail(name, "required: a sound file", "missing_required_parameter");
    else if (part->body.empty())
      fail(name, "the file is empty");
    return part;
  }

  void fail(std::string_view name, std::string message, std::string code = "") {
    if (!error_)
      error_ = {400, fmt::format("'{}': {}", name, message), std::string(name), std::move(code)};
  }
  const std::optional<ApiError>& error() const { return error_; }

  std::vector<std::string> unknown() const {
    std::vector<std::string> out;
    for (size_t i = 0; i < parts_.size(); ++i)
      if (!is_known_[i]) out.push_back(text::repair_utf8(parts_[i].name));
    return out;
  }

  static std::string shown(std::string_view value) {
    return text::repair_utf8(value.substr(0, 40));
  }

 private:
  const FormPart* find(std::string_view name) {
    const FormPart* found = nullptr;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].name != name) continue;
      is_known_[i] = true;
      if (found) fail(name, "is given more than once");
      found = &parts_[i];
    }
    return found;
  }

  std::vector<FormPart> parts_;
  std::vector<bool> is_known_;
  std::optional<ApiError> error_;
};

void read_language(FormFields& fields, AudioRequest& out) {
  const auto given = fields.text("language");
  if (!given) return;
  const speech::Language* const language = speech::find_language(*given);
  if (language)
    out.language = language->code;
  else
    fields.fail("language",
                fmt::format("'{}' is not a language's code (ISO 639-1, as en) or English name",
                            FormFields::shown(*given)),
                kInvalidValue);
}

void read_format(FormFields& fields, AudioRequest& out) {
  const std::string_view given = fields.text("response_format").value_or("json");
  for (const auto& [name, format] : kFormats)
    if (given == name) {
      out.format = format;
      return;
    }
  fields.fail(
      "response_format",
      fmt::format("'{}' is none of json, text, srt, verbose_json, vtt", FormFields::shown(given)),
      kInvalidValue);
}

void read_granularities(FormFields& fields, AudioRequest& out) {
  constexpr char kName[] = "timestamp_granularities";
  const auto given = fields.list(kName);
  if (given.empty()) return;
  out.wants_segments = false;
  for (const std::string_view value : given) {
    if (value == "word")
      out.wants_words = true;
    else if (value == "segment")
      out.wants_segments = true;
    else
      fields.fail(kName, fmt::format("'{}' is neither word nor segment", FormFields::shown(value)),
                  kInvalidValue);
  }
  if (out.format != AudioFormat::kVerboseJson)
    fields.fail(kName, "needs response_format verbose_json");
}

void read_include(FormFields& fields, AudioRequest& out) {
  for (const std::string_view value : fields.list("include")) {
    if (value == "logprobs")
      out.wants_log_probs = true;
    else
      fields.fail("include", fmt::format("'{}' is not logprobs", FormFields::shown(value)),
                  kInvalidValue);
  }
  if (out.wants_log_probs && out.format != AudioFormat::kJson)
    fields.fail("include", "logprobs need response_format json");
}

// Two names of the number of beams: of openai/whisper, and of transformers.
void read_beams(FormFields& fields, AudioRequest& out) {
  constexpr int kMost = 16;
  for (const char* name : {"beam_size", "num_beams"}) {
    const auto number = fields.number(name, 1, kMost);
    if (!number) continue;
    if (*number != std::floor(*number))
      fields.fail(name, fmt::format("{} is not a whole number", *number), kInvalidValue);
    else if (out.num_beams > 1 && *number != out.num_beams)
      fields.fail(name, fmt::format("{} is not the beam_size {}", *number, out.num_beams),
                  kInvalidValue);
    out.num_beams = static_cast<int>(*number);
  }
  if (out.num_beams > 1 && out.temperature > 0)
    fields.fail("beam_size",
                fmt::format("{} beams need temperature 0, not {}", out.num_beams, out.temperature),
                kInvalidValue);
}

// "auto", or {"type": "server_vad", ...}, whose numbers have no effect.
void read_chunking(FormFields& fields, AudioRequest& out) {
  constexpr char kName[] = "chunking_strategy";
  const auto given = fields.text(kName);
  if (!given) return;
  out.in_parts = *given == "auto";
  if (!out.in_parts && given->starts_with('{')) {
    const auto object = parse_json(*given);
    out.in_parts =
        object.ok() && object->is_object() && text_member(*object, "type") == "server_vad";
    out.common.warning = "the numbers of chunking_strategy have no effect";
  }
  if (!out.in_parts)
    fields.fail(kName,
                fmt::format("'{}' is neither auto nor an object of type server_vad",
                            FormFields::shown(*given)),
                kInvalidValue);
}

}  // namespace

Parsed<AudioRequest> parse_audio_request(AudioTask task, std::string_view content_type,
                                         std::string_view body) {
  auto parts = parse_form(content_type, body);
  if (!parts.ok()) return ApiError{400, std::string(message(parts.status())), "", ""};
  FormFields fields(*std::move(parts));
  AudioRequest out;
  out.task = task;
  if (const FormPart* const file = fields.file("file")) out.file = file->body;
  out.common.model = fields.text("model").value_or("");
  out.prompt = text::repair_utf8(fields.text("prompt").value_or(""));
  out.temperature = fields.number("temperature", 0, 1).value_or(0);
  out.common.stream = fields.flag("stream").value_or(false);
  read_beams(fields, out);
  read_language(fields, out);
  read_format(fields, out);
  read_granularities(fields, out);
  read_include(fields, out);
  read_chunking(fields, out);
  if (out.common.stream && out.format != AudioFormat::kJson && out.format != AudioFormat::kText)
    fields.fail("stream", "needs response_format json or text");
  if (fields.error()) return *fields.error();
  out.common.unknown = fields.unknown();
  return out;
}

}  // namespace nereid::front
