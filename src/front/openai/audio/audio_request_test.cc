// Forms of the audio routes.
#include "front/openai/audio/audio_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nereid::front {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kType[] = "multipart/form-data; boundary=XX";
using FormValues = std::vector<std::pair<std::string_view, std::string_view>>;

std::string form_of(const FormValues& values, std::string_view file = "RIFF") {
  std::string out;
  for (const auto& [name, value] : values)
    out += fmt::format("--XX\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", name,
                       value);
  return out + fmt::format(
                   "--XX\r\nContent-Disposition: form-data; name=\"file\"; "
                   "filename=\"a.wav\"\r\n\r\n{}\r\n--XX--\r\n",
                   file);
}

AudioRequest read(const std::string& body) {
  auto parsed = parse_audio_request(AudioTask::kTranscribe, kType, body);
  EXPECT_TRUE(std::holds_alternative<AudioRequest>(parsed)) << std::get<ApiError>(parsed).message;
  return std::get<AudioRequest>(std::move(parsed));
}

ApiError error_of(const std::string& body, std::string_view type = kType) {
  auto parsed = parse_audio_request(AudioTask::kTranscribe, type, body);
  EXPECT_TRUE(std::holds_alternative<ApiError>(parsed));
  return std::get<ApiError>(std::move(parsed));
}

TEST(AudioRequestTest, Defaults) {
  const std::string body = form_of({});
  const AudioRequest request = read(body);
  EXPECT_EQ(request.file, "RIFF");
  EXPECT_EQ(request.common.model, "");
  EXPECT_EQ(request.format, AudioFormat::kJson);
  EXPECT_EQ(request.temperature, 0);
  EXPECT_EQ(request.num_beams, 1);
  EXPECT_EQ(request.language, "");
  EXPECT_TRUE(request.wants_segments);
  EXPECT_FALSE(request.wants_words || request.in_parts || request.common.stream);
}

TEST(AudioRequestTest, EveryField) {
  const std::string body = form_of({{"model", "whisper"},
                                    {"language", "German"},
                                    {"prompt", "Ada\xff"},
                                    {"response_format", "verbose_json"},
                                    {"temperature", "0.4"},
                                    {"timestamp_granularities[]", "word"},
                                    {"timestamp_granularities[]", "segment"},
                                    {"chunking_strategy", "auto"},
                                    {"mode", "x"},
                                    {"beam_size", "1"},
                                    {"stream", ""}});
  const AudioRequest request = read(body);
  EXPECT_EQ(request.common.model, "whisper");
  EXPECT_EQ(request.language, "de");
  EXPECT_EQ(request.prompt, "Ada\xef\xbf\xbd");
  EXPECT_EQ(request.temperature, 0.4);
  EXPECT_TRUE(request.wants_words && request.wants_segments && request.in_parts);
  EXPECT_THAT(request.common.unknown, ElementsAre("mode"));
  const std::string vad =
      form_of({{"chunking_strategy", R"({"type": "server_vad", "threshold": 0.5})"},
               {"include[]", "logprobs"},
               {"timestamp_granularities", ""}});
  EXPECT_TRUE(read(vad).in_parts);
  EXPECT_TRUE(read(vad).wants_log_probs);
  EXPECT_FALSE(read(vad).common.warning.empty());
}

TEST(AudioRequestTest, FaultsAreNamed) {
  EXPECT_THAT(error_of("{}", "application/json").message, HasSubstr("multipart/form-data"));
  EXPECT_THAT(error_of("", "").message, HasSubstr("multipart/form-data"));
  EXPECT_EQ(error_of("--XX--").param, "file");
  EXPECT_EQ(error_of(form_of({}, "")).message, "'file': the file is empty");
  EXPECT_EQ(error_of(form_of({{"file", "twice"}})).message, "'file': is given more than once");
  EXPECT_EQ(error_of(form_of({{"model", "a"}, {"model", "b"}})).param, "model");
  const auto fault = [](std::string_view name, std::string_view value) {
    const ApiError error = error_of(form_of({{name, value}}));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, name);
    return error.message;
  };
  EXPECT_THAT(fault("language", "klingon"), HasSubstr("'klingon' is not a language's code"));
  EXPECT_THAT(fault("response_format", "xml"), HasSubstr("none of json, text, srt"));
  for (const char* value : {"1.5", "-1", "nan", "inf", "1e999", "0,5", "x", " 1"})
    EXPECT_THAT(fault("temperature", value), HasSubstr("is not in [0, 1]")) << value;
  for (const char* value : {"0", "17", "1.5", "two"})
    EXPECT_FALSE(fault("beam_size", value).empty());
  EXPECT_THAT(error_of(form_of({{"beam_size", "2"}, {"num_beams", "3"}})).message,
              HasSubstr("'num_beams': 3 is not the beam_size 2"));
  EXPECT_THAT(fault("stream", "perhaps"), HasSubstr("is not true or false"));
  EXPECT_THAT(fault("timestamp_granularities", "letter"), HasSubstr("neither word nor segment"));
  EXPECT_THAT(fault("timestamp_granularities", "word"), HasSubstr("verbose_json"));
  EXPECT_THAT(fault("include", "pictures"), HasSubstr("is not logprobs"));
  EXPECT_THAT(fault("chunking_strategy", "{\"type\": 3}"), HasSubstr("server_vad"));
  EXPECT_THAT(fault("prompt", std::string(20000, 'x')), HasSubstr("has 20000 bytes; allowed are"));
  EXPECT_THAT(error_of(form_of({{"stream", "true"}, {"response_format", "srt"}})).message,
              HasSubstr("needs response_format json or text"));
  EXPECT_THAT(error_of(form_of({{"include[]", "logprobs"}, {"response_format", "text"}})).message,
              HasSubstr("need response_format json"));
}

}  // namespace
}  // namespace nereid::front
