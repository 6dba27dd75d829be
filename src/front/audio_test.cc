// The audio routes over real sockets and a scripted speech model.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "front/testing/server_fixture.h"
#include "speech/audio/test_wav.h"
#include "speech/test_speech_model.h"

namespace nereid::front {
namespace {

namespace vocab = speech::testing_only;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using FormValues = std::vector<std::pair<std::string_view, std::string_view>>;

std::vector<int32_t> ids_of(const FakeTriton::Inputs& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) return {};
  std::vector<int32_t> out(found->second.size() / 4);
  std::memcpy(out.data(), found->second.data(), 4 * out.size());
  return out;
}

class AudioTest : public ServerTest {
 protected:
  void SetUp() override {
    max_body_bytes_ = size_t{8} << 20;
    ServerTest::SetUp();
    const std::filesystem::path dir = ::testing::TempDir() + "/audio_test_tokenizer";
    std::filesystem::create_directories(dir);
    std::ofstream(dir / "tokenizer.json")
        << json::serialize(speech::testing_only::tokenizer_json());
    std::ofstream(dir / "generation_config.json")
        << R"({"suppress_tokens": [1, 2], "begin_suppress_tokens": [32, 256],
               "alignment_heads": [[0, 1], [1, 0]], "max_initial_timestamp_index": 50})";
    fake_.tokenizer_dir = dir;
    fake_.max_seq_len = 448;
    hears({vocab::Tokens().at(0).say(" Hello there.").at(2)});
  }

  static HeardTokens heard(const vocab::Tokens& tokens, float log_prob = -0.1f) {
    return {.tokens = tokens.ids,
            .log_probs = std::vector<float>(tokens.ids.size() + 1, log_prob),
            .attention = {},
            .attention_shape = {},
            .sum = 0};
  }
  // Answers of decoding in order, the last one again and again; German; no silence.
  void hears(std::vector<vocab::Tokens> answers) {
    auto next = std::make_shared<std::atomic<size_t>>(0);
    std::lock_guard lock(fake_.mutex);
    fake_.hear = [this, answers = std::move(answers), next](const FakeTriton::Inputs& inputs) {
      const auto allowed = ids_of(inputs, "allowed_token_ids");
      if (allowed == std::vector<int32_t>{vocab::kNoSpeech})
        return heard(vocab::Tokens().id(vocab::kNoSpeech), -5);
      if (!allowed.empty()) return heard(vocab::Tokens().id(vocab::kGerman));
      {
        std::lock_guard prompts_lock(prompts_mutex_);  // parts are heard at once
        prompts_.push_back(ids_of(inputs, "decoder_input_ids"));
      }
      return heard(answers[std::min((*next)++, answers.size() - 1)]);
    };
  }

  static std::string sound(double seconds) {
    std::vector<float> samples(static_cast<size_t>(seconds * 16000));
    for (size_t i = 0; i < samples.size(); ++i)
      samples[i] = 0.3f * std::sin(static_cast<float>(i % 1000));
    return speech::testing_only::wav(samples, {.rate = 16000});
  }
  static std::string form(std::string_view file, const FormValues& values = {}) {
    std::string out;
    for (const auto& [name, value] : values)
      out += fmt::format("--XX\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n{}\r\n", name,
                         value);
    out += "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    return out.append(file) + "\r\n--XX--\r\n";
  }
  Reply send(std::string_view file, const FormValues& values = {},
             std::string_view path = "/v1/audio/transcriptions") {
    return ask(port_, "POST", path, form(file, values),
               "Content-Type: multipart/form-data; boundary=XX\r\n");
  }

  std::mutex prompts_mutex_;
  std::vector<std::vector<int32_t>> prompts_;
};

TEST_F(AudioTest, ASentenceInEveryFormat) {
  const std::string file = *read_file(source_dir() + "/tests/speech/boats.flac");
  const Reply reply = send(file, {{"language", "en"}, {"model", "tiny"}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json(), json::value({{"text", "Hello there."},
                                       {"usage", {{"type", "duration"}, {"seconds", 3}}}}));
  EXPECT_THAT(prompts_,
              ElementsAre(ElementsAre(vocab::kStart, vocab::kEnglish, vocab::kTranscribe)));
  EXPECT_EQ(fake_.last_bytes["encoder_input_features"].size(), 4u * 3000 * 80);
  EXPECT_EQ(ids_of(fake_.last_bytes, "encoder_output_lengths"), (std::vector<int32_t>{1500}));
  EXPECT_EQ(ids_of(fake_.last_bytes, "timestamp_rules"),
            (std::vector<int32_t>{vocab::kZero, vocab::kNoTimestamps, vocab::kEnd, 50}));
  EXPECT_EQ(ids_of(fake_.last_bytes, "begin_suppress_tokens"), (std::vector<int32_t>{32, 256}));
  EXPECT_EQ(ids_of(fake_.last_bytes, "end_id"), (std::vector<int32_t>{vocab::kEnd}));
  EXPECT_FALSE(fake_.last_bytes["bad_words_list"].empty());
  const Reply text = send(file, {{"language", "en"}, {"response_format", "text"}});
  EXPECT_EQ(text.body, "Hello there.\n");
  EXPECT_THAT(text.head, HasSubstr("text/plain"));
  EXPECT_EQ(send(file, {{"language", "en"}, {"response_format", "srt"}}).body,
            "1\n00:00:00,000 --> 00:00:02,000\nHello there.\n\n");
  EXPECT_EQ(send(file, {{"language", "en"}, {"response_format", "vtt"}}).body,
            "WEBVTT\n\n00:00.000 --> 00:02.000\nHello there.\n\n");
}

TEST_F(AudioTest, VerboseAnswersHaveSegmentsAndTheLanguage) {
  const auto body =
      send(sound(2.5), {{"response_format", "verbose_json"}, {"prompt", "Ada"}}).json();
  EXPECT_EQ(body.at("task"), "transcribe");
  EXPECT_EQ(body.at("language"), "german");
  EXPECT_EQ(body.at("duration").to_number<double>(), 2.5);
  const json::value& segment = body.at("segments").at(0);
  EXPECT_EQ(segment.at("id").to_number<int>(), 0);
  EXPECT_EQ(segment.at("text"), " Hello there.");
  EXPECT_EQ(segment.at("end").to_number<double>(), 2);
  EXPECT_NEAR(segment.at("avg_logprob").to_number<double>(), -0.1, 1e-6);
  EXPECT_NEAR(segment.at("no_speech_prob").to_number<double>(), std::exp(-5), 1e-6);
  EXPECT_EQ(segment.at("tokens").as_array().size(), 15u);
  EXPECT_FALSE(body.as_object().contains("words"));
  ASSERT_EQ(prompts_.size(), 1u);
  EXPECT_THAT(prompts_[0], ElementsAre(vocab::kPrevious, ' ', 'A', 'd', 'a', vocab::kStart,
                                       vocab::kGerman, vocab::kTranscribe));
}

TEST_F(AudioTest, TranslationsAndWarmerTemperatures) {
  vocab::Tokens again;
  again.at(0);
  for (int i = 0; i < 30; ++i) again.say(" again");
  hears({again.at(2), vocab::Tokens().at(0).say(" Good.").at(2)});
  const Reply reply = send(sound(2), {{"language", "de"}, {"odd", "1"}}, "/v1/audio/translations");
  EXPECT_EQ(reply.json().at("text"), "Good.");
  EXPECT_THAT(reply.head, HasSubstr("unknown fields: odd"));
  EXPECT_THAT(prompts_[1], ElementsAre(vocab::kStart, vocab::kGerman, vocab::kTranslate));
  float temperature = 0;
  std::memcpy(&temperature, fake_.last_bytes["temperature"].data(), 4);
  EXPECT_FLOAT_EQ(temperature, 0.2f);
}

TEST_F(AudioTest, LongRecordingsGoOnWhereTheLastSegmentEnded) {
  hears({vocab::Tokens().at(0).say(" One.").at(20).at(20),
         vocab::Tokens().at(0).say(" Two.").at(25)});
  const auto body =
      send(sound(45), {{"language", "en"}, {"response_format", "verbose_json"}}).json();
  EXPECT_EQ(body.at("text"), "One. Two.");
  EXPECT_EQ(body.at("segments").at(1).at("seek").to_number<int>(), 2000);
  EXPECT_EQ(body.at("segments").at(1).at("end").to_number<double>(), 45);
}

TEST_F(AudioTest, PartsAreTranscribedAtOnceWhereTheCallerAllowsIt) {
  const auto body =
      send(sound(100),
           {{"language", "en"}, {"chunking_strategy", "auto"}, {"response_format", "verbose_json"}})
          .json();
  EXPECT_GE(body.at("segments").as_array().size(), 4u);
  for (const auto& prompt : prompts_) EXPECT_EQ(prompt.size(), 3u);  // none goes on from another
  double end = 0;
  for (const json::value& segment : body.at("segments").as_array()) {
    EXPECT_GE(segment.at("start").to_number<double>(), end);
    end = segment.at("end").to_number<double>();
  }
}

TEST_F(AudioTest, PartsWaitForAFullQueue) {
  fake_.most_hearing = 2;
  fake_.hold_types = true;
  std::thread release([&] {
    EXPECT_TRUE(eventually([&] { return fake_.num_refused >= 1; }));
    fake_.hold_types = false;
  });
  const Reply reply = send(sound(150), {{"language", "en"}, {"chunking_strategy", "auto"}});
  release.join();
  EXPECT_EQ(reply.status, 200) << reply.body;
  std::string wanted = "Hello there.";
  EXPECT_GE(reply.json().at("text").as_string().size(), 5 * wanted.size());
}

TEST_F(AudioTest, StreamsAWindowAtATime) {
  hears({vocab::Tokens().at(0).say(" One.").at(20).at(20),
         vocab::Tokens().at(0).say(" Two.").at(25)});
  const Reply reply =
      send(sound(45), {{"language", "en"}, {"stream", "true"}, {"include[]", "logprobs"}});
  const auto all = events(reply.body);
  ASSERT_EQ(all.size(), 4u) << reply.body;
  EXPECT_EQ(all[0].at("type"), "transcript.text.delta");
  EXPECT_EQ(all[0].at("delta"), "One.");
  EXPECT_EQ(all[0].at("logprobs").at(1).at("token"), "O");
  EXPECT_EQ(all[1].at("delta"), " Two.");
  EXPECT_EQ(all[2].at("type"), "transcript.text.done");
  EXPECT_EQ(all[2].at("text"), "One. Two.");
  EXPECT_EQ(all[3], "[DONE]");
}

TEST_F(AudioTest, WordsComeOfTheAttention) {
  const auto decode = fake_.hear;
  std::lock_guard lock(fake_.mutex);
  fake_.hear = [decode](const FakeTriton::Inputs& inputs) {
    const auto heads = ids_of(inputs, "alignment_heads");
    if (heads.empty()) return decode(inputs);
    EXPECT_EQ(heads, (std::vector<int32_t>{0, 1, 1, 0}));
    const auto size = ids_of(inputs, "decoder_input_ids").size();
    HeardTokens out{.tokens = {},
                    .log_probs = std::vector<float>(size - 1, -0.5f),
                    .attention = {},
                    .attention_shape = {1, 2, static_cast<int64_t>(size), 1500},
                    .sum = 0};
    for (size_t head = 0; head < 2; ++head)
      for (size_t t = 0; t < size; ++t)
        for (size_t p = 0; p < 1500; ++p) {
          const auto far = static_cast<float>(p) - 5 * static_cast<float>(t);
          out.attention.push_back(-far * far / 8);
        }
    return out;
  };
  fake_.mutex.unlock();
  const auto body = send(sound(2.5), {{"language", "en"},
                                      {"response_format", "verbose_json"},
                                      {"timestamp_granularities[]", "word"}})
                        .json();
  fake_.mutex.lock();
  EXPECT_FALSE(body.as_object().contains("segments"));
  const json::array& words = body.at("words").as_array();
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].at("word"), "Hello");
  EXPECT_EQ(words[1].at("word"), "there.");
  EXPECT_EQ(words[0].at("end"), words[1].at("start"));
}

TEST_F(AudioTest, WithoutAListTheUpperLayersAlign) {
  const std::filesystem::path dir = ::testing::TempDir() + "/audio_test_tokenizer";
  std::filesystem::remove(dir / "generation_config.json");
  std::ofstream(dir / "config.json") << R"({"decoder_layers": 3, "decoder_attention_heads": 2})";
  const FormValues values = {{"language", "en"},
                             {"response_format", "verbose_json"},
                             {"timestamp_granularities[]", "word"}};
  send(sound(2.5), values);
  EXPECT_EQ(ids_of(fake_.last_bytes, "alignment_heads"),
            (std::vector<int32_t>{1, 0, 1, 1, 2, 0, 2, 1}));
  std::filesystem::remove(dir / "config.json");
}

// Log-probability of the end of text = cum_log_probs - sum of the tokens' log-probabilities.
TEST_F(AudioTest, BeamsAtTemperatureZero) {
  std::atomic<int> searches = 0;
  {
    std::lock_guard lock(fake_.mutex);
    fake_.hear = [&searches](const FakeTriton::Inputs& inputs) {
      const bool searched = inputs.contains("beam_width");
      searches += searched;
      if (searched) {
        EXPECT_EQ(ids_of(inputs, "beam_width"), (std::vector<int32_t>{3}));
        EXPECT_EQ(ids_of(inputs, "num_return_sequences"), (std::vector<int32_t>{1}));
      }
      HeardTokens out = heard(vocab::Tokens().at(0).say(" Hello.").at(2));
      if (!searched) out.tokens.resize(1);
      if (searched) {
        out.log_probs.assign(out.tokens.size(), -0.1f);
        out.sum = -0.1f * static_cast<float>(out.tokens.size()) - 0.8f;
      }
      return out;
    };
  }
  const auto body =
      send(sound(2), {{"language", "en"}, {"response_format", "verbose_json"}, {"num_beams", "3"}})
          .json();
  EXPECT_EQ(searches, 1);
  ASSERT_TRUE(body.as_object().contains("segments")) << json::serialize(body);
  const double mean = body.at("segments").at(0).at("avg_logprob").to_number<double>();
  EXPECT_NEAR(mean, (-0.1 * 9 - 0.8) / 10, 1e-5);
  const auto error = [&](const FormValues& values) {
    const Reply reply = send(sound(1), values);
    EXPECT_EQ(reply.status, 400);
    return std::string(reply.json().at("message").as_string());
  };
  EXPECT_THAT(error({{"beam_size", "6"}}), HasSubstr("'beam_size': 6 is not in [1, 5]"));
  EXPECT_THAT(error({{"beam_size", "2"}, {"temperature", "0.5"}}),
              HasSubstr("'beam_size': 2 beams need temperature 0, not 0.5"));
}

TEST_F(AudioTest, TextIsRefusedWithTheRouteOfRecordings) {
  for (const auto& [path, body] :
       {std::pair<const char*, const char*>{"/v1/completions", R"({"prompt": "a"})"},
        {"/v1/embeddings", R"({"input": "a"})"},
        {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"},
        {"/v1/rerank", R"({"query": "a", "documents": ["b"]})"}}) {
    const Reply reply = ask(port_, "POST", path, body);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_THAT(reply.body, HasSubstr("takes recordings, not text: POST /v1/audio/transcriptions"))
        << path;
  }
  EXPECT_EQ(ask(port_, "POST", "/tokenize", R"({"prompt": "a"})").status, 200);
}

TEST_F(AudioTest, ASoundOfAFewSamplesHasNoText) {
  for (const FormValues& more : {FormValues{{"language", "en"}},
                                 FormValues{{"language", "en"}, {"chunking_strategy", "auto"}},
                                 FormValues{{"stream", "true"}}}) {
    const Reply reply = send(sound(0.001), more);
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, HasSubstr(R"("text":"")"));
  }
}

TEST_F(AudioTest, FaultsAreNamed) {
  const auto message_of = [&](const Reply& reply, int status) {
    EXPECT_EQ(reply.status, status) << reply.body;
    return std::string(reply.json().at("message").as_string());
  };
  EXPECT_THAT(message_of(send("hello"), 400), HasSubstr("'file': the file is of no known format"));
  EXPECT_THAT(message_of(send(sound(1), {{"language", "sw"}}), 400),
              HasSubstr("does not have the language 'sw'"));
  EXPECT_THAT(message_of(send(sound(1), {{"model", "gpt-9"}}), 404), HasSubstr("'gpt-9'"));
  EXPECT_THAT(message_of(ask(port_, "POST", "/v1/audio/transcriptions", "{}",
                             "Content-Type: application/json\r\n"),
                         400),
              HasSubstr("must be multipart/form-data"));
  EXPECT_EQ(ask(port_, "GET", "/v1/audio/transcriptions").status, 405);
  EXPECT_THAT(
      message_of(ask(port_, "POST", "/v1/audio/transcriptions", "x", "Content-Encoding: gzip\r\n"),
                 415),
      HasSubstr("Content-Encoding: 'gzip' is not supported"));
  {
    std::lock_guard lock(fake_.mutex);
    fake_.hear = [](const FakeTriton::Inputs&) { return HeardTokens{.fails = true}; };
  }
  EXPECT_THAT(message_of(send(sound(1), {{"language", "en"}}), 500), HasSubstr("engine failed"));
  {
    std::lock_guard lock(fake_.mutex);
    fake_.hear = nullptr;
  }
  EXPECT_THAT(message_of(send(sound(1)), 400), HasSubstr("takes no sound: /v1/audio needs"));
  EXPECT_EQ(fake_.num_live, 0);
}

TEST_F(AudioTest, AClientThatLeavesCancelsItsPasses) {
  fake_.hold_types = true;
  const int fd = connect_to(port_);
  EXPECT_TRUE(send_all(
      fd, request_text("POST", "/v1/audio/transcriptions",
                       form(sound(100), {{"language", "en"}, {"chunking_strategy", "auto"}}),
                       "Content-Type: multipart/form-data; boundary=XX\r\n")));
  EXPECT_TRUE(eventually([&] { return fake_.num_heard >= 4; }));
  close(fd);
  EXPECT_TRUE(eventually([&] { return fake_.num_cancelled >= 4; }));
  fake_.hold_types = false;
}

}  // namespace
}  // namespace nereid::front
