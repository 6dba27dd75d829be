// ensemble and tensorrt_llm_bls over the quick-start model, through the C API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "backend/common/infer_call.h"
#include "base/file.h"
#include "base/json.h"

namespace nereid::backend {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Replaces the placeholders given; the rest stay and mean "default".
void write_repository(const fs::path& dir, const std::map<std::string, std::string>& values) {
  for (const auto& entry :
       fs::directory_iterator(NEREID_SOURCE_DIR "/all_models/inflight_batcher_llm")) {
    std::string text = *read_file(entry.path() / "config.pbtxt");
    for (const auto& [name, value] : values) {
      for (size_t at; (at = text.find("${" + name + "}")) != std::string::npos;) {
        text.replace(at, name.size() + 3, value);
      }
    }
    const fs::path to = dir / entry.path().filename();
    fs::create_directories(to / "1");
    ASSERT_TRUE(write_file_atomic(to / "config.pbtxt", text).ok());
  }
}

struct Conversation {
  Status status;                   // of the first error
  std::vector<std::string> texts;  // text_output of each response
  std::vector<std::vector<Output>> outputs;
  int num_finals = 0;
  std::string joined() const {
    std::string all;
    for (const auto& text : texts) all += text;
    return all;
  }
};

Output text_input(const char* name, const std::vector<std::string>& words) {
  return make_output(name, {1, static_cast<int64_t>(words.size())}, words);
}
Output int_input(const char* name, int32_t value) {
  return make_output(name, {1, 1}, std::vector<int32_t>{value});
}
Output float_input(const char* name, float value) {
  return make_output(name, {1, 1}, std::vector<float>{value});
}
Output bool_input(const char* name, bool value) {
  return {name, TRITONSERVER_TYPE_BOOL, {1, 1}, std::string(1, value ? '\1' : '\0')};
}

std::string first_string(const std::string& bytes) {
  uint32_t length = 0;
  if (bytes.size() < sizeof(length)) return "<none>";
  std::memcpy(&length, bytes.data(), sizeof(length));
  return bytes.substr(sizeof(length), length);
}

// A call that is over when wait() returns.
class Talk {
 public:
  Talk(TRITONSERVER_Server* server, const std::string& model, std::vector<Output> inputs) {
    auto call = InferCall::start(server, model, "test", std::move(inputs),
                                 [this](Reply reply) { take(std::move(reply)); });
    if (call.ok()) {
      call_ = *std::move(call);
    } else {
      result_.status = call.status();
    }
  }
  void cancel() { call_->cancel(); }
  Conversation wait() {
    std::unique_lock lock(mutex_);
    if (call_ == nullptr) return result_;
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return result_.num_finals > 0; }));
    return result_;
  }
  void wait_for_text() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !result_.texts.empty(); });
  }

 private:
  void take(Reply reply) {
    std::lock_guard lock(mutex_);
    if (!reply.status.ok() && result_.status.ok()) result_.status = reply.status;
    for (const auto& output : reply.outputs) {
      if (output.name == "text_output") result_.texts.push_back(first_string(output.bytes));
    }
    if (!reply.outputs.empty()) result_.outputs.push_back(std::move(reply.outputs));
    result_.num_finals += reply.is_final;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Conversation result_;
  std::shared_ptr<InferCall> call_;
};

class BackendTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {}); }
  static void TearDownTestSuite() { stop(server_, dir_); }

  static void start(TRITONSERVER_Server*& server, fs::path& dir,
                    std::map<std::string, std::string> values) {
    std::string name = (fs::temp_directory_path() / "nereid-backend-XXXXXX").string();
    dir = mkdtemp(name.data());
    const std::string model = NEREID_SOURCE_DIR "/models/quickstart";
    values.merge(std::map<std::string, std::string>{{"triton_max_batch_size", "4"},
                                                    {"decoupled_mode", "true"},
                                                    {"preprocessing_instance_count", "1"},
                                                    {"postprocessing_instance_count", "1"},
                                                    {"bls_instance_count", "1"},
                                                    {"engine_dir", model},
                                                    {"tokenizer_dir", model},
                                                    {"num_threads", "2"},
                                                    {"max_tokens_in_paged_kv_cache", "8192"},
                                                    {"cache_dir", (dir / ".cache").string()},
                                                    {"logits_datatype", "TYPE_FP32"}});
    write_repository(dir, values);
    TRITONSERVER_ServerOptions* options = nullptr;
    TRITONSERVER_ServerOptionsNew(&options);
    TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, dir.c_str());
    TRITONSERVER_ServerOptionsSetBackendDirectory(options, NEREID_BACKENDS);
    const Status status = take(TRITONSERVER_ServerNew(&server, options));
    TRITONSERVER_ServerOptionsDelete(options);
    ASSERT_TRUE(status.ok()) << status;
  }
  static void stop(TRITONSERVER_Server*& server, const fs::path& dir) {
    if (server != nullptr) {
      EXPECT_TRUE(take(TRITONSERVER_ServerStop(server)).ok());
      TRITONSERVER_ServerDelete(server);
    }
    server = nullptr;
    fs::remove_all(dir);
  }

  static Conversation ask(const std::string& model, const std::string& prompt, int32_t max_tokens,
                          std::vector<Output> more = {}) {
    more.push_back(text_input("text_input", {prompt}));
    more.push_back(int_input("max_tokens", max_tokens));
    Talk talk(server_, model, std::move(more));
    return talk.wait();
  }

  static inline TRITONSERVER_Server* server_ = nullptr;
  static inline fs::path dir_;
};

constexpr const char* kPrompt = "What is machine learning?";

TEST_F(BackendTest, GoldenTextsComeOut) {
  const auto golden = read_json_file(NEREID_SOURCE_DIR "/tests/golden/target.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  int checked = 0;
  for (const auto& item : golden->as_object().at("cases").as_array()) {
    const auto& c = item.as_object();
    if (c.at("kind").as_string() != "raw" || !c.at("end_index").is_null()) continue;
    if (c.at("clear_steps").as_int64() < 48 || ++checked > 3) continue;
    const std::string prompt(c.at("prompt").as_string()), text(c.at("text").as_string());
    for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
      const auto got = ask(model, prompt, 48, {bool_input("exclude_input_in_output", true)});
      EXPECT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.joined(), text) << model;
      EXPECT_EQ(got.texts.size(), 1u);
      const auto streamed = ask(model, prompt, 48, {bool_input("stream", true)});
      EXPECT_EQ(streamed.joined(), text) << model << " streamed";
      EXPECT_GT(streamed.texts.size(), 20u);
    }
  }
  EXPECT_GT(checked, 0);
}

TEST_F(BackendTest, ThePromptIsPartOfTheTextByDefault) {
  const auto got = ask("ensemble", kPrompt, 4);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_THAT(got.joined(), testing::StartsWith(kPrompt));
}

TEST_F(BackendTest, StopWordsEndTheTextHoweverTheyAreTokenised) {
  // "of artificial" is tokenised differently at the start of a text than inside a sentence.
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    for (const bool stream : {false, true}) {
      const auto got = ask(model, kPrompt, 48,
                           {text_input("stop_words", {"ntelligence"}), bool_input("stream", stream),
                            bool_input("exclude_input_in_output", true)});
      ASSERT_TRUE(got.status.ok()) << got.status;
      EXPECT_THAT(got.joined(), testing::EndsWith("ntelligence")) << model;
    }
  }
}

TEST_F(BackendTest, AccumulatesOnlyWhenAsked) {
  const auto got = ask("tensorrt_llm_bls", kPrompt, 6, {bool_input("stream", true)});
  ASSERT_GE(got.texts.size(), 3u);
  EXPECT_FALSE(got.texts[2].starts_with(got.texts[1]));
}

TEST_F(BackendTest, SamplingIsSeeded) {
  const auto sample = [&](uint64_t seed) {
    return ask("ensemble", "Once", 16,
               {float_input("temperature", 5.0f),
                float_input("top_p", 1.0f),
                {"random_seed",
                 TRITONSERVER_TYPE_UINT64,
                 {1, 1},
                 std::string(reinterpret_cast<const char*>(&seed), sizeof(seed))}})
        .joined();
  };
  EXPECT_EQ(sample(1), sample(1));
  EXPECT_NE(sample(1), sample(2));
}

TEST_F(BackendTest, CountsAndPerfMetricsOnRequest) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto got = ask(
        model, kPrompt, 5,
        {bool_input("return_num_input_tokens", true), bool_input("return_num_output_tokens", true),
         bool_input("return_perf_metrics", true)});
    ASSERT_TRUE(got.status.ok()) << got.status;
    std::map<std::string, std::string> by_name;
    for (const auto& output : got.outputs.back()) by_name[output.name] = output.bytes;
    int32_t count = 0;
    ASSERT_EQ(by_name["num_input_tokens"].size(), sizeof(count));
    std::memcpy(&count, by_name["num_input_tokens"].data(), sizeof(count));
    EXPECT_EQ(count, 5);
    std::memcpy(&count, by_name["num_output_tokens"].data(), sizeof(count));
    EXPECT_EQ(count, 5);
    EXPECT_EQ(by_name["first_token_time_ns"].size(), 8u);
  }
}

TEST_F(BackendTest, RefusesByName) {
  const auto error = [&](const char* model, std::vector<Output> more, int32_t tokens = 4) {
    return std::string(message(ask(model, kPrompt, tokens, std::move(more)).status));
  };
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    EXPECT_EQ(error(model, {float_input("repetition_penalty", 1.0f)}), "");
    EXPECT_THAT(error(model, {int_input("beam_width", 4)}),
                HasSubstr("Requested beam width 4 is larger than configured max beam width 1"));
    EXPECT_THAT(error(model, {text_input("guided_decoding_guide_type", {"json"})}),
                HasSubstr("guided_decoding_guide_type"));
    EXPECT_THAT(error(model, {{"lora_task_id",
                               TRITONSERVER_TYPE_UINT64,
                               {1, 1},
                               std::string("\1\0\0\0\0\0\0\0", 8)}}),
                HasSubstr("lora_task_id"));
    // Tensor, value and range, whatever reads it.
    const std::pair<Output, const char*> wrong[] = {
        {float_input("repetition_penalty", 0.0f),
         "input 'repetition_penalty' is 0, expected greater than 0"},
        {float_input("min_p", 1.5f), "input 'min_p' is 1.5, expected a value in [0, 1]"},
        {float_input("top_p", 1.5f), "input 'runtime_top_p' is 1.5"},
        {int_input("top_k", -1), "input 'runtime_top_k' is -1"},
        {int_input("num_return_sequences", 0), "input 'num_return_sequences' is 0"},
        {float_input("presence_penalty", NAN),
         "input 'presence_penalty' is nan, expected a finite"},
        {int_input("num_top_log_probs", 40), "input 'num_top_log_probs' is 40"},
        {float_input("priority", 2.0f), "input 'priority' is 2, expected a value in [0, 1]"},
        {int_input("end_id", 1 << 30), "EndId (1073741824) is not within acceptable range"},
    };
    for (const auto& [input, text] : wrong) {
      EXPECT_THAT(error(model, {input}), HasSubstr(text)) << model;
    }
    EXPECT_EQ(error(model, {text_input("bad_words", {""})}), "");
    EXPECT_NE(error(model, {}, 0), "");
    std::string long_prompt;
    for (int i = 0; i < 4000; ++i) long_prompt += " word";
    const auto too_long = ask(model, long_prompt, 4);
    EXPECT_EQ(too_long.status.code(), absl::StatusCode::kInvalidArgument) << too_long.status;
    EXPECT_THAT(std::string(message(too_long.status)), testing::ContainsRegex("4[0-9]{3}"));
    EXPECT_NE(error(model, {float_input("temperature", -1.0f)}), "");
  }
}

TEST_F(BackendTest, CancelEndsAStream) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    Talk talk(server_, model,
              {text_input("text_input", {kPrompt}), int_input("max_tokens", 1500),
               int_input("end_id", -1), bool_input("stream", true)});
    talk.wait_for_text();
    talk.cancel();
    const auto got = talk.wait();
    EXPECT_EQ(got.num_finals, 1);
    EXPECT_LT(got.texts.size(), 1400u) << model;
  }
}

TEST_F(BackendTest, MetricsAreThere) {
  ask("ensemble", kPrompt, 4);
  TRITONSERVER_Metrics* metrics = nullptr;
  TRITONSERVER_ServerMetrics(server_, &metrics);
  const char* base = nullptr;
  size_t size = 0;
  TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &base, &size);
  const std::string text(base, size);
  TRITONSERVER_MetricsDelete(metrics);
  EXPECT_THAT(text, HasSubstr("nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type="
                              "\"active\",version=\"1\"}"));
  EXPECT_THAT(text, HasSubstr("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_"
                              "per\",model=\"tensorrt_llm\",version=\"1\"} 32"));
  EXPECT_THAT(text, HasSubstr("nv_llm_input_token_len_count"));
  EXPECT_THAT(text, HasSubstr("nereid_time_to_first_token_seconds_count"));
}

}  // namespace
}  // namespace nereid::backend
