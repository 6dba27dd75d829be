// The model whisper_bls on a tiny Whisper, trained on the words of tests/speech.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/testing/backend_fixture.h"
#include "speech/audio/sound.h"

namespace nereid::backend {
namespace {

constexpr char kText[] = "The boats, they sail.";

class WhisperTest : public BackendTest {
 protected:
  static inline const std::string kModel = source_dir() + "/tests/encoder_models/whisper-speech";
  static void SetUpTestSuite() { start_speech("false"); }
  static void start_speech(const std::string& decoupled, const std::string& model = kModel) {
    std::map<std::string, std::string> values = {{"decoupled_mode", decoupled},
                                                 {"engine_dir", model},
                                                 {"exclude_input_in_output", "true"},
                                                 {"encoder_input_features_data_type", "TYPE_FP16"},
                                                 {"max_batch_size", "4"}};
    start(server_, dir_, values, [&](const fs::path& dir) {
      for (const char* other : {"ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls"})
        fs::remove_all(dir / other);
      values["triton_max_batch_size"] = "4";
      values["n_mels"] = "80";
      values["zero_pad"] = "false";
      write_repository(dir, values, "whisper");
      std::string ranks;
      for (int byte = 0; byte < 256; ++byte)
        ranks += fmt::format("{} {}\n", base64(static_cast<char>(byte)), byte);
      ASSERT_TRUE(
          write_file_atomic(dir / "whisper_bls" / "1" / "multilingual.tiktoken", ranks).ok());
    });
  }
  static std::string base64(char byte) {
    constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto bits = static_cast<unsigned>(static_cast<unsigned char>(byte)) << 4;
    return {kDigits[bits >> 6], kDigits[bits & 63], '=', '='};
  }
  static std::vector<float> boats() {
    const std::string file = *read_file(source_dir() + "/tests/speech/boats.flac");
    const speech::Samples samples = speech::decode_sound(file, {}).value().samples;
    return {samples.begin(), samples.end()};
  }
  static Output wav(const std::vector<float>& samples) {
    return make_output("WAV", {1, std::ssize(samples)}, samples);
  }
  static Conversation hear(std::vector<Output> inputs, const std::string& prefix = "") {
    inputs.push_back(text_input("TEXT_PREFIX", {prefix}));
    return Talk(server_, "whisper_bls", std::move(inputs)).wait();
  }
  static std::string text_of(const std::vector<Output>& outputs) {
    EXPECT_EQ(outputs.size(), 1u);
    EXPECT_EQ(outputs.at(0).name, "TRANSCRIPTS");
    return first_string(outputs.at(0).bytes);
  }
};

TEST_F(WhisperTest, ATranscriptOfASound) {
  const std::vector<float> sound = boats();
  const auto got = hear({wav(sound), int_input("WAV_LENS", static_cast<int32_t>(sound.size()))});
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_EQ(got.outputs.size(), 1u);
  EXPECT_EQ(text_of(got.outputs[0]), kText);
  // Time stamps and other special tokens are not shown; the length is optional.
  const auto timed = hear({wav(sound)}, "<|startoftranscript|><|en|><|transcribe|>");
  ASSERT_TRUE(timed.status.ok()) << timed.status;
  EXPECT_EQ(text_of(timed.outputs.at(0)), " " + std::string(kText));
}

TEST_F(WhisperTest, FaultsAreNamed) {
  const std::vector<float> sound = boats();
  const auto error = [&](std::vector<Output> inputs, const std::string& prefix = "") {
    const auto got = hear(std::move(inputs), prefix);
    EXPECT_EQ(got.status.code(), absl::StatusCode::kInvalidArgument) << got.status;
    return std::string(message(got.status));
  };
  EXPECT_THAT(error({wav(std::vector<float>(200))}), HasSubstr("'WAV' has 200 samples, expected"));
  EXPECT_THAT(error({wav(std::vector<float>(480001))}), HasSubstr("has 480001 samples"));
  std::vector<float> odd = sound;
  odd[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error({wav(odd)}), HasSubstr("sample 5 is nan"));
  EXPECT_THAT(error({wav(sound), int_input("WAV_LENS", 1 << 30)}), HasSubstr("'WAV_LENS' is 1073"));
  EXPECT_THAT(error({make_output("WAV", {2, 400}, std::vector<float>(800))}), HasSubstr("input"));
  EXPECT_THAT(error({wav(sound)}, std::string(3000, 'x')), HasSubstr("prompt"));
  const auto got = hear({wav(sound)});
  EXPECT_TRUE(got.status.ok()) << got.status;
}

class StreamedWhisperTest : public WhisperTest {
 protected:
  static void SetUpTestSuite() { start_speech("true"); }
};

TEST_F(StreamedWhisperTest, EachResponseHasAllOfTheText) {
  const auto got = hear({wav(boats())});
  ASSERT_TRUE(got.status.ok()) << got.status;
  ASSERT_GT(got.outputs.size(), 4u);
  std::string before;
  for (const auto& outputs : got.outputs) {
    const std::string text = text_of(outputs);
    EXPECT_TRUE(text.starts_with(before)) << text;
    before = text;
  }
  EXPECT_EQ(before, kText);
  EXPECT_EQ(got.num_finals, 1);
}

TEST_F(StreamedWhisperTest, ACancelEndsTheCall) {
  Talk talk(server_, "whisper_bls", {wav(boats()), text_input("TEXT_PREFIX", {""})});
  talk.cancel();
  EXPECT_EQ(talk.wait().num_finals, 1);
}

class ForcedIdsTest : public WhisperTest {
 protected:
  static void SetUpTestSuite() {
    model_ = fs::temp_directory_path() / fmt::format("nereid-forced-{}", ::getpid());
    fs::copy(kModel, model_, fs::copy_options::recursive);
    ASSERT_TRUE(write_file_atomic(model_ / "generation_config.json",
                                  R"({"forced_decoder_ids": [[1, 70], [2, 71], [3, null]]})")
                    .ok());
    start_speech("false", model_.string());
  }
  static void TearDownTestSuite() {
    WhisperTest::TearDownTestSuite();
    fs::remove_all(model_);
  }
  static Ids generate(const Ids& prompt) {
    std::vector<Output> inputs = {
        {"encoder_input_features", TRITONSERVER_TYPE_FP16, {1, 100, 80}, std::string(16000, '\0')},
        int_input("input_lengths", 100),
        int_input("request_output_len", 6),
        int_input("end_id", -1)};
    if (!prompt.empty())
      inputs.push_back(make_output("decoder_input_ids", {1, std::ssize(prompt)}, prompt));
    const auto got = Talk(server_, "tensorrt_llm", std::move(inputs)).wait();
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.outputs.empty() ? Ids() : elements<int32_t>(got.outputs[0], "output_ids");
  }
  static inline fs::path model_;
};

class EncoderOutputTest : public WhisperTest {
 protected:
  static Conversation ask(std::vector<Output> more) {
    std::vector<Output> inputs = {
        {"encoder_input_features", TRITONSERVER_TYPE_FP16, {1, 100, 80}, std::string(16000, '\0')},
        int_input("input_lengths", 100),
        int_input("request_output_len", 6),
        int_input("end_id", -1)};
    for (Output& input : more) inputs.push_back(std::move(input));
    return Talk(server_, "tensorrt_llm", std::move(inputs)).wait();
  }
  static Output flag(const char* name) {
    return {name, TRITONSERVER_TYPE_BOOL, {1, 1}, std::string(1, '\1')};
  }
  static Output mask(Shape shape, std::string bits) {
    return {"cross_attention_mask", TRITONSERVER_TYPE_BOOL, std::move(shape), std::move(bits)};
  }
};

TEST_F(EncoderOutputTest, ComesWithTheFirstResponse) {
  const auto plain = ask({});
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  for (const Output& output : plain.outputs.at(0)) EXPECT_NE(output.name, "encoder_output");
  const auto got = ask({flag("return_encoder_output")});
  ASSERT_TRUE(got.status.ok()) << got.status;
  const auto output = std::ranges::find(got.outputs.at(0), "encoder_output", &Output::name);
  ASSERT_NE(output, got.outputs[0].end());
  EXPECT_EQ(output->datatype, TRITONSERVER_TYPE_FP32);
  const json::value config = *read_json_file(fs::path(kModel) / "config.json");
  EXPECT_EQ(output->shape, (Shape{1, 50, config.at("d_model").to_number<int64_t>()}));
  EXPECT_EQ(elements<int32_t>(got.outputs[0], "output_ids"),
            elements<int32_t>(plain.outputs[0], "output_ids"));
}

TEST_F(EncoderOutputTest, MasksHidePositions) {
  const auto ids = [](const Conversation& got) {
    EXPECT_TRUE(got.status.ok()) << got.status;
    return got.outputs.empty() ? Ids() : elements<int32_t>(got.outputs[0], "output_ids");
  };
  const Ids plain = ids(ask({}));
  EXPECT_EQ(ids(ask({mask({1, 1, 50}, std::string(50, '\1'))})), plain);
  EXPECT_EQ(ids(ask({mask({1, 2, 50}, std::string(50, '\0') + std::string(50, '\1'))})).size(),
            plain.size());
  const auto error = [](const Conversation& got) {
    EXPECT_EQ(got.status.code(), absl::StatusCode::kInvalidArgument) << got.status;
    return std::string(message(got.status));
  };
  EXPECT_THAT(error(ask({mask({1, 1, 49}, std::string(49, '\1'))})),
              HasSubstr("cross_attention_mask: 49 columns; the encoder's output has 50 positions"));
  EXPECT_EQ(ids(ask({mask({1, 0, 50}, "")})), plain) << "an empty tensor is none";
}

// generation_config.json forces the tokens behind the first one.
TEST_F(ForcedIdsTest, AreThoseOfRequestsWithoutADecoderPrompt) {
  const json::value config = *read_json_file(model_ / "config.json");
  const int32_t start = config.at("decoder_start_token_id").to_number<int32_t>();
  const Ids usual = generate({});
  EXPECT_EQ(usual, generate({start, 70, 71}));
  EXPECT_NE(usual, generate({start}));
}

}  // namespace
}  // namespace nereid::backend
