// Requests and replies of megabytes over real sockets: refusals by size, and the order of
// results of workers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <tuple>

#include "base/scratch_dir.h"
#include "front/openai/handlers.h"
#include "front/protection/budget_memory.h"
#include "front/testing/server_fixture.h"

namespace nereid::front {
namespace {

class LongRequestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.reset();
    HttpOptions options = local_options(/*metrics_port=*/0);
    options.budget = budget_;
    server_ = start_front(options);
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override { stop_front(*server_); }
  Reply post(std::string_view path, std::string_view body) {
    return ask(server_->http_port(), "POST", path, body);
  }

  FakeTriton& fake_ = FakeTriton::get();
  std::shared_ptr<ByteBudget> budget_ = std::make_shared<ByteBudget>();
  std::unique_ptr<HttpServer> server_;
};

// The text is not tokenised for that: the error counts bytes, not tokens.
TEST_F(LongRequestsTest, PromptsThatCannotFitAreRefusedByTheirBytes) {
  const std::string text(300000, 'q');
  const std::string completion = fmt::format(R"({{"prompt": "{}"}})", text);
  const std::string chat =
      fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", text);
  for (const auto& [path, body, field] : {std::tuple("/v1/completions", completion, "prompt"),
                                          std::tuple("/v1/chat/completions", chat, "messages")}) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400);
    const auto error = reply.json().at("error");
    EXPECT_EQ(error.at("code").as_string(), "context_length_exceeded");
    EXPECT_EQ(error.at("param").as_string(), field);
    EXPECT_NE(std::string_view(error.at("message").as_string()).find("but the prompt has 300"),
              std::string_view::npos)
        << reply.body;
  }
}

TEST_F(LongRequestsTest, ALongPromptThatFitsIsAnswered) {
  fake_.max_seq_len = 1000000;
  {
    std::lock_guard lock(fake_.mutex);
    fake_.script = {100};
  }
  std::string text;
  while (text.size() < 100000) text += "one two three ";
  const Reply reply =
      post("/v1/completions", fmt::format(R"({{"prompt": "{}", "max_tokens": 2}})", text));
  EXPECT_EQ(reply.status, 200) << reply.body;
  const auto tokenizer = *text::Tokenizer::load(fake_.tokenizer_dir);
  EXPECT_EQ(fake_.last_prompt, *tokenizer->encode(text));
}

// A load of other files under the same configuration. The tokenizer must be that of the loaded
// files, not of the present ones.
TEST_F(LongRequestsTest, TheTokenizerIsThatOfTheLoadedModel) {
  const auto scratch = ScratchDir::create();
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const std::filesystem::path dir = scratch->path();
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(std::filesystem::path(fake_.tokenizer_dir) / name, dir / name);
  }
  fake_.tokenizer_dir = dir.string();
  fake_.tokenizer_hash = text::Tokenizer::files_hash(dir);
  {
    std::lock_guard lock(fake_.mutex);
    fake_.script = {100};
  }
  const auto ask_for_one = [this] {
    return post("/v1/completions", R"({"prompt": "one two", "max_tokens": 1})");
  };
  EXPECT_EQ(ask_for_one().status, 200);
  const auto before = fake_.last_prompt;
  // Another tokenizer: no word is one token any more.
  json::value file = *read_json_file(dir / "tokenizer.json");
  file.at("model").at("merges") = json::array();
  std::ofstream(dir / "tokenizer.json") << json::serialize(file);
  EXPECT_EQ(ask_for_one().status, 200);
  EXPECT_EQ(fake_.last_prompt, before);
  // The model is loaded again.
  fake_.tokenizer_hash = text::Tokenizer::files_hash(dir);
  EXPECT_EQ(ask_for_one().status, 200);
  EXPECT_NE(fake_.last_prompt, before);
  // The model has other files than the present ones.
  fake_.tokenizer_hash = "0123456789abcdef";
  const Reply reply = ask_for_one();
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("have changed since model 'preprocessing' was loaded"), reply.body.npos)
      << reply.body;
}

TEST_F(LongRequestsTest, AnEngineOfAnotherNameAnswers) {
  fake_.engine_name = "llama";
  {
    std::lock_guard lock(fake_.mutex);
    fake_.script = {100};
  }
  for (const char* model : {"", "llama"}) {
    const Reply reply =
        post("/v1/completions",
             fmt::format(R"({{"model": "{}", "prompt": "x", "max_tokens": 1}})", model));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.json().at("model").as_string(), "llama");
  }
  EXPECT_EQ(post("/v1/completions", R"({"model": "other", "prompt": "x"})").status, 404);
}

TEST_F(LongRequestsTest, ParametersOfGenerateAreCounted) {
  std::string body = "{\"p\": 1";
  for (int i = 0; i < 1023; ++i) body += fmt::format(", \"p{}\": 1", i);
  EXPECT_EQ(post("/v2/models/types/generate", body + "}").status, 200);
  const Reply reply = post("/v2/models/types/generate", body + ", \"last\": 1}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("1025 parameters, at most 1024 are allowed"), reply.body.npos)
      << reply.body;
}

// "types" returns its inputs: megabytes in, megabytes out, several responses.
TEST_F(LongRequestsTest, LargeRepliesComeWholeAndInOrder) {
  std::string words = "\"word\"";
  while (words.size() < 1500000) words += ",\"another word\"";
  const std::string inputs = fmt::format(R"("words": [{}])", words);
  const Reply whole = post("/v2/models/types/generate", "{" + inputs + "}");
  EXPECT_EQ(whole.status, 200);
  EXPECT_GT(whole.body.size(), 1000000u);
  const Reply stream =
      post("/v2/models/types/generate_stream", "{" + inputs + R"(, "replies": 3})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.body.find("<cut>"), std::string::npos);
  size_t last = 0;
  for (const char* index : {"\"index\":0", "\"index\":1", "\"index\":2"}) {
    const size_t at = stream.body.find(index);
    ASSERT_NE(at, std::string::npos) << index;
    EXPECT_GE(at, last);
    last = at;
  }
  EXPECT_GT(stream.body.size(), 3 * 1000000u);
}

// A client that does not read costs the tensors and a part of the text, not all of it.
TEST_F(LongRequestsTest, ALargeReplyIsWrittenAsItIsRead) {
  std::string body = R"({"words": ["w")";
  while (body.size() < 20000000) body += R"(,"another word of some length")";
  body += "]}";
  for (const auto& [verb, leaves] : {std::pair("generate", false),
                                     {"generate_stream", false},
                                     {"generate", true},
                                     {"generate_stream", true}}) {
    const int fd = connect_to(server_->http_port());
    const std::string text = request_text("POST", fmt::format("/v2/models/types/{}", verb), body);
    ASSERT_TRUE(send_all(fd, text));
    char first[16];
    ASSERT_EQ(recv(fd, first, sizeof first, MSG_WAITALL), 16);
    EXPECT_EQ(std::string_view(first, 12), "HTTP/1.1 200");
    // The request, the tensors in and out, and two parts.
    const size_t most = 3 * text.size() + (size_t{2} << 20);
    EXPECT_LT(budget_->used(), most) << verb;
    if (leaves) {  // the unread rest is freed
      close(fd);
      EXPECT_TRUE(eventually([&] { return budget_->used() == 0; })) << verb;
      continue;
    }
    std::string rest;
    std::vector<char> buffer(1 << 20);
    for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
      rest.append(buffer.data(), static_cast<size_t>(n));
      EXPECT_LT(budget_->used(), most) << verb;
    }
    close(fd);
    EXPECT_GT(rest.size(), 20000000u);
    EXPECT_TRUE(rest.ends_with("0\r\n\r\n"));
  }
}

// The same for infer, as JSON and as bytes behind JSON; whole texts would exceed the budget.
TEST_F(LongRequestsTest, ALargeInferReplyIsWrittenAsItIsRead) {
  std::string words = "\"w\"";
  int64_t count = 1;
  for (; words.size() < 20000000; ++count) words += ",\"another word of some length\"";
  for (const char* is_binary : {"false", "true"}) {
    const std::string body = fmt::format(
        R"({{"inputs": [{{"name": "words", "datatype": "BYTES", "shape": [1, {}], "data": [{}]}}],
            "parameters": {{"binary_data_output": {}}}}})",
        count, words, is_binary);
    const int fd = connect_to(server_->http_port());
    const std::string text = request_text("POST", "/v2/models/types/infer", body);
    ASSERT_TRUE(send_all(fd, text));
    char first[16];
    ASSERT_EQ(recv(fd, first, sizeof first, MSG_WAITALL), 16);
    EXPECT_EQ(std::string_view(first, 12), "HTTP/1.1 200");
    const size_t most = 3 * text.size() + (size_t{2} << 20);
    EXPECT_LT(budget_->used(), most) << is_binary;
    EXPECT_GT(budget_->used(), text.size() + 15000000) << is_binary;  // the tensors count
    std::string rest;
    std::vector<char> buffer(1 << 20);
    for (ssize_t n; (n = recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
      rest.append(buffer.data(), static_cast<size_t>(n));
    }
    close(fd);
    EXPECT_GT(rest.size(), 20000000u);
    EXPECT_TRUE(eventually([&] { return budget_->used() == 0; }));
  }
}

// A tree is many times as large as its text: it must count in the budget.
TEST_F(LongRequestsTest, ParsedJsonCountsInTheBudget) {
  server_->stop(std::chrono::milliseconds(60000));
  budget_ = std::make_shared<ByteBudget>(size_t{32} << 20);
  SetUp();
  std::string numbers = "1";
  while (numbers.size() < 4000000) numbers += ",1";
  const std::pair<const char*, std::string> cases[] = {
      {"/v2/models/types/infer",
       R"({"inputs":[{"name":"count","datatype":"INT32","shape":[1],"data":[)" + numbers + "]}]}"},
      {"/v2/models/types/generate", R"({"count":[)" + numbers + "]}"},
      {"/v1/completions", R"({"prompt":[)" + numbers + "]}"}};
  for (const auto& [path, body] : cases) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 503) << path << reply.body;
    EXPECT_NE(reply.body.find("holds more than 33554432 bytes"), reply.body.npos) << reply.body;
    EXPECT_TRUE(eventually([&] { return budget_->used() == 0; })) << path;
  }
}

class OneAnswer final : public Exchange {
 public:
  Request& request() override { return request_; }
  void post(std::function<void()> work) override { posted.set_value(std::move(work)); }
  void send(Response response) override { status = response.status, body = response.body; }
  void begin_stream(Response, std::string) override {}
  void write(std::string_view) override {}
  void end() override {}
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return false; }

  std::promise<std::function<void()>> posted;
  int status = 0;
  std::string body;

 private:
  Request request_;
};

struct NeverRead {
  const LanguageModel& model() const { std::abort(); }
  int64_t num_prompt_tokens() const { return 0; }
  void start(TRITONSERVER_Server*, Tracer&) {}
};

// The budget may have room for the tree of a body but not for the values made of it.
TEST_F(LongRequestsTest, WhatIsMadeOfParsedJsonCountsInTheBudget) {
  Workers workers(1);
  const OpenAiContextPtr context(
      new OpenAiContext{{fake_server(), {}}, {}, nullptr, workers, nullptr, nullptr});
  const auto exchange = std::make_shared<OneAnswer>();
  using Ready = std::variant<std::shared_ptr<NeverRead>, ApiError>;
  read_and_start(context, exchange,
                 [](Lane) -> Ready { throw BudgetIsFull(unavailable("no room")); });
  exchange->posted.get_future().get()();
  EXPECT_EQ(exchange->status, 503);
  EXPECT_NE(exchange->body.find("no room"), std::string::npos) << exchange->body;
}

// A reply many times as large as its request counts before it is made.
TEST_F(LongRequestsTest, RepliesOfTheTokenizerCountInTheBudget) {
  server_->stop(std::chrono::milliseconds(60000));
  budget_ = std::make_shared<ByteBudget>(size_t{24} << 20);
  SetUp();
  const auto tokenizer = *text::Tokenizer::load(fake_.tokenizer_dir);
  int32_t longest = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    if (tokenizer->token_bytes(id).size() > tokenizer->token_bytes(longest).size()) longest = id;
  ASSERT_GT(tokenizer->token_bytes(longest).size(), 8u);
  std::string ids = fmt::format("{}", longest);
  for (int i = 1; i < 400000; ++i) ids += fmt::format(",{}", longest);
  const std::pair<const char*, std::string> cases[] = {
      {"/detokenize", R"({"tokens":[)" + ids + "]}"},
      {"/tokenize", R"({"return_token_strs":true,"prompt":")" + std::string(3000000, 'q') + "\"}"}};
  for (const auto& [path, body] : cases) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_NE(reply.body.find("more than 25165824 bytes"), reply.body.npos) << reply.body;
    EXPECT_TRUE(eventually([&] { return budget_->used() == 0; })) << path;
  }
  EXPECT_EQ(post("/detokenize", R"({"tokens":[100,101]})").status, 200);
}

// A tokenizer's memory while it reads a text counts beside the text.
TEST_F(LongRequestsTest, TokenizingCountsInTheBudget) {
  server_->stop(std::chrono::milliseconds(60000));
  budget_ = std::make_shared<ByteBudget>(size_t{24} << 20);
  SetUp();
  fake_.max_seq_len = 1 << 20;
  fake_.script.assign(2, 100);
  const auto body = [](const char* form, size_t size) {
    return fmt::format(fmt::runtime(form), std::string(size, 'q'));
  };
  const std::pair<const char*, const char*> cases[] = {
      {"/tokenize", R"({{"prompt":"{}"}})"},
      {"/v1/completions", R"({{"prompt":"{}","max_tokens":1}})"},
      {"/v1/chat/completions",
       R"({{"messages":[{{"role":"user","content":"{}"}}],"max_tokens":1}})"},
      {"/v1/embeddings", R"({{"input":"{}"}})"}};
  for (const auto& [path, form] : cases) {
    const Reply reply = post(path, body(form, 600000));
    EXPECT_EQ(reply.status, 503) << path << reply.body.substr(0, 200);
    EXPECT_NE(reply.body.find("more than 25165824 bytes"), reply.body.npos) << reply.body;
    EXPECT_TRUE(eventually([&] { return budget_->used() == 0; })) << path;
    EXPECT_EQ(post(path, body(form, 20000)).status, 200) << path;
  }
}

// An answer that is sent whole counts while it gathers.
TEST_F(LongRequestsTest, AnswersThatGatherCountInTheBudget) {
  server_->stop(std::chrono::milliseconds(60000));
  budget_ = std::make_shared<ByteBudget>(1 << 20);
  SetUp();
  fake_.max_seq_len = 40000;
  fake_.script.assign(30000, 100);
  const std::string body = R"({"prompt":"a","max_tokens":30000,"ignore_eos":true,"logprobs":5})";
  const std::string chat =
      R"({"messages":[{"role":"user","content":"a"}],"max_tokens":30000,"ignore_eos":true,)"
      R"("logprobs":true,"top_logprobs":5})";
  for (const auto& [path, text] :
       {std::pair("/v1/completions", body), std::pair("/v1/chat/completions", chat)}) {
    const Reply reply = post(path, text);
    EXPECT_EQ(reply.status, 503) << path << reply.body.substr(0, 200);
    EXPECT_NE(reply.body.find("more than 1048576 bytes"), reply.body.npos);
    EXPECT_TRUE(eventually([&] { return budget_->used() == 0; })) << path;
  }
}

TEST_F(LongRequestsTest, BodiesOfSettingsAreShort) {
  const std::string body =
      fmt::format(R"({{"log_info": true, "x": "{}"}})", std::string(300000, 'x'));
  for (const char* path : {"/v2/logging", "/v2/trace/setting"})
    EXPECT_EQ(post(path, body).status, 403) << "no administrator: " << path;
  for (const char* path : {"/v2/repository/index", "/v2/systemsharedmemory/region/r/register"}) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_NE(reply.body.find("at most 262144 are allowed here"), reply.body.npos) << reply.body;
  }
}

TEST_F(LongRequestsTest, ThePageShowsTurnsAndBytes) {
  const std::string page = ask(server_->metrics_port(), "GET", "/metrics").body;
  EXPECT_NE(page.find("\nnereid_io_stall_seconds_count "), std::string::npos) << page;
  EXPECT_NE(page.find("\nnereid_client_bytes 0"), std::string::npos) << page;
  EXPECT_NE(page.find("\nnereid_client_bytes_limit 4294967296"), std::string::npos) << page;
}

}  // namespace
}  // namespace nereid::front
