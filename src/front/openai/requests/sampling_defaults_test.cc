#include "front/openai/requests/sampling_defaults.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/file.h"

namespace nereid::front {
namespace {

using testing::HasSubstr;

class SamplingDefaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/defaults.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  StatusOr<GenerationDefaults> read(std::string_view text) {
    EXPECT_TRUE(write_file_atomic(dir_ / "generation_config.json", text).ok());
    return read_generation_defaults(dir_);
  }
  std::string error(std::string_view text) { return std::string(message(read(text).status())); }
  SamplingOptions options(const std::string& body, const GenerationDefaults& defaults) {
    auto parsed = parse_completion_request(body);
    EXPECT_TRUE(std::holds_alternative<CompletionRequest>(parsed)) << body;
    SamplingOptions sampling = std::get<CompletionRequest>(parsed).common.sampling;
    use_defaults(defaults.sampling, sampling);
    return sampling;
  }

  std::filesystem::path dir_;
};

TEST_F(SamplingDefaultsTest, TakeThePlaceOfWhatARequestLeavesOut) {
  EXPECT_EQ(read_generation_defaults(dir_)->max_tokens, 0) << "no file";
  const auto defaults = read(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.95, "top_k": 20,
      "min_p": 0.1, "repetition_penalty": 1.05, "max_new_tokens": 7, "eos_token_id": [1, 2]})");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->max_tokens, 7);
  SamplingOptions s = options(R"({"prompt": "x"})", *defaults);
  EXPECT_EQ(s.temperature, 0.6);
  EXPECT_EQ(s.top_p, 0.95);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.repetition_penalty, 1.05);
  s = options(R"({"prompt": "x", "temperature": 1, "top_p": 1, "top_k": -1, "min_p": 0,
                  "repetition_penalty": 1})",
              *defaults);
  EXPECT_EQ(s.temperature, 1);
  EXPECT_EQ(s.top_p, 1);
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.min_p, 0);
  EXPECT_EQ(s.repetition_penalty, 1);
  s = options(R"({"prompt": "x", "temperature": null})", *defaults);
  EXPECT_EQ(s.temperature, 0.6);
  s = options(R"({"prompt": "x"})", *read(R"({"temperature": 1e-9, "top_k": null})"));
  EXPECT_EQ(s.temperature, 0) << "greedy";
  EXPECT_EQ(s.top_k, 0);
}

TEST_F(SamplingDefaultsTest, AreRefusedByName) {
  EXPECT_THAT(error("[]"), HasSubstr("generation_config.json: is not an object"));
  EXPECT_THAT(error(R"({"temperature": -1})"),
              HasSubstr("generation_config.json: field 'temperature': -1 is not a number in"));
  EXPECT_THAT(error(R"({"top_p": 0})"), HasSubstr("'top_p': 0"));
  EXPECT_THAT(error(R"({"top_k": "20"})"), HasSubstr("'top_k': \"20\""));
  EXPECT_THAT(error(R"({"min_p": 2})"), HasSubstr("'min_p': 2"));
  EXPECT_THAT(error(R"({"repetition_penalty": 3})"), HasSubstr("'repetition_penalty': 3"));
  EXPECT_THAT(error(R"({"max_new_tokens": 0})"), HasSubstr("'max_new_tokens': 0"));
}

}  // namespace
}  // namespace nereid::front
