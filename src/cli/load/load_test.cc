// The load generator against a scripted server.
#include "cli/load/load.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "base/testing/loopback_listener.h"
#include "cli/load/report.h"

namespace nereid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Answers connection i with text i (further ones with the last) and closes it.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::vector<std::string> answers) : answers_(std::move(answers)) {
    thread_ = std::jthread([this] { run(); });
  }
  ~ScriptedServer() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    listener_.shut_down();
    thread_.join();
  }
  int port() const { return listener_.port(); }
  std::vector<std::string> requests() {
    std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  static std::string read_request(int fd) {
    std::string text;
    char buffer[4096];
    while (true) {
      const size_t head = text.find("\r\n\r\n");
      const size_t length = text.find("Content-Length: ");
      if (head != text.npos) {
        const size_t body = length < head ? std::stoul(text.substr(length + 16)) : 0;
        if (text.size() >= head + 4 + body) return text;
      }
      const ssize_t size = ::recv(fd, buffer, sizeof(buffer), 0);
      if (size <= 0) return text;
      text.append(buffer, static_cast<size_t>(size));
    }
  }
  void run() {
    for (size_t i = 0;; ++i) {
      const int fd = listener_.accept();
      if (fd < 0) return;
      std::string request = read_request(fd);
      {
        // Recorded before the response is sent: the client may then call requests() at once.
        std::lock_guard lock(mutex_);
        requests_.push_back(std::move(request));
      }
      const std::string& answer = answers_[std::min(i, answers_.size() - 1)];
      EXPECT_EQ(::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(answer.size()));
      ::close(fd);
    }
  }

  const std::vector<std::string> answers_;
  const LoopbackListener listener_;
  std::jthread thread_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
};

std::string chunk(std::string_view text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const std::string kStream =
    kStreamHead +
    chunk("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n") +
    chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\nda") +
    chunk("ta: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\n\r\n") +
    chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\n") +
    chunk("data: [DONE]\n\n") + "0\r\n\r\n";

std::string whole(std::string_view body, std::string_view status = "200 OK") {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n\r\n{}", status, body.size(), body);
}

LoadOptions options_for(int port) {
  LoadOptions options;
  options.url = {.host = "127.0.0.1", .port = std::to_string(port)};
  options.model = "m";
  options.max_concurrency = 1;
  options.timeout_s = 60;
  return options;
}

std::vector<BenchRequest> some_requests(int count) {
  return std::vector<BenchRequest>(count, {.prompt = "hello", .output_tokens = 5});
}

TEST(Load, AStreamIsCountedByItsUsage) {
  ScriptedServer server({kStream});
  LoadOptions options = options_for(server.port());
  options.endpoint = Endpoint::kChat;
  options.api_key = "key";
  options.ignore_eos = true;
  options.extra_body = {{"temperature", 1}, {"top_k", 3}};
  const auto outcomes = run_load(options, some_requests(3));
  ASSERT_EQ(outcomes.size(), 3u);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.prompt_tokens, 9);
    EXPECT_EQ(outcome.output_tokens, 5);
    EXPECT_EQ(outcome.gaps_s.size(), 1u);
    EXPECT_LE(outcome.begin_s, outcome.first_s);
    EXPECT_LE(outcome.first_s, outcome.end_s);
  }
  EXPECT_THAT(server.requests()[0],
              testing::AllOf(HasSubstr("POST /v1/chat/completions HTTP/1.1\r\n"),
                             HasSubstr("Authorization: Bearer key\r\n"),
                             HasSubstr(R"("messages":[{"role":"user","content":"hello"}])"),
                             HasSubstr(R"("max_tokens":5,"temperature":1,"ignore_eos":true)"),
                             HasSubstr(R"("stream_options":{"include_usage":true},"top_k":3)")));
}

TEST(Load, WholeAnswersAndIds) {
  ScriptedServer server(
      {whole(R"({"choices":[{"text":"x"}],"usage":{"prompt_tokens":2,"completion_tokens":4}})")});
  LoadOptions options = options_for(server.port());
  options.streaming = false;
  const auto outcomes = run_load(options, {{.input_ids = {3, 4}, .output_tokens = 4}});
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_EQ(outcomes[0].output_tokens, 4);
  EXPECT_THAT(server.requests()[0], HasSubstr(R"("prompt":[3,4])"));
}

TEST(Load, FailuresAreCountedByTheirWords) {
  ScriptedServer server({kStream, whole("busy", "429 Too Many Requests"),
                         // The connection breaks.
                         kStreamHead + chunk("data: {\"choices\":[]}\n\n"),
                         kStreamHead + chunk("data: {\"choices\":[]}\n\n") + "0\r\n\r\n",
                         kStreamHead + chunk("data: {\"error\":{\"message\":\"m\"}}\n\n") +
                             chunk("data: [DONE]\n\n") + "0\r\n\r\n",
                         kStreamHead + chunk("data: {\n\n") + "0\r\n\r\n", "nonsense\r\n\r\n"});
  const auto outcomes = run_load(options_for(server.port()), some_requests(7));
  std::vector<std::string> errors;
  for (const Outcome& outcome : outcomes) errors.push_back(outcome.error);
  EXPECT_THAT(errors,
              ElementsAre("", "HTTP 429: busy", HasSubstr("closed the connection"),
                          "the stream ended without [DONE]", HasSubstr(R"({"message":"m"})"),
                          HasSubstr("an event is no JSON"), HasSubstr("no status line")));
  const json::object report = load_report(outcomes, {}, {99});
  EXPECT_EQ(report.at("completed").get_int64(), 1);
  EXPECT_EQ(report.at("failed").get_int64(), 6);
  EXPECT_EQ(report.at("errors").get_object().size(), 6u);
  EXPECT_EQ(report.at("total_output_tokens").get_int64(), 5);
  EXPECT_THAT(load_report_text(report), HasSubstr("error, 1 times: HTTP 429: busy"));
}

TEST(Load, ADeadServerEndsTheRun) {
  ScriptedServer server({kStream});
  const int port = server.port();
  server.stop();
  LoadOptions options = options_for(port);
  options.max_concurrency = 4;
  for (const Outcome& outcome : run_load(options, some_requests(20)))
    EXPECT_THAT(outcome.error, HasSubstr("connect"));
  EXPECT_FALSE(first_model(options).ok());
}

TEST(Load, TheFirstModelIsAskedFor) {
  ScriptedServer server({whole(R"({"data":[{"id":"tiny"},{"id":"other"}]})"), whole("{}")});
  const auto model = first_model(options_for(server.port()));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model, "tiny");
  EXPECT_THAT(std::string(message(first_model(options_for(server.port())).status())),
              HasSubstr("names no model"));
}

TEST(Load, ArrivalsArePoisson) {
  const auto due = arrivals(20000, 50, 1);
  EXPECT_EQ(due[0], 0);
  EXPECT_NEAR(due.back(), 400, 15);
  std::vector<double> gaps;
  for (size_t i = 1; i < due.size(); ++i) gaps.push_back(due[i] - due[i - 1]);
  const Spread spread(gaps);
  EXPECT_NEAR(spread.mean, 0.02, 0.001);
  EXPECT_NEAR(spread.stdev, 0.02, 0.001);  // for an exponential distribution equal to the mean
  EXPECT_EQ(due, arrivals(20000, 50, 1));
  EXPECT_NE(due, arrivals(20000, 50, 2));
  EXPECT_THAT(arrivals(2, 0, 1), ElementsAre(0, 0));
}

TEST(LoadReport, FiguresOfKnownTimes) {
  Outcome fast{.begin_s = 1,
               .first_s = 1.1,
               .end_s = 1.5,
               .gaps_s = {0.2, 0.2},
               .prompt_tokens = 10,
               .output_tokens = 3};
  Outcome slow{.begin_s = 1,
               .first_s = 2,
               .end_s = 3,
               .gaps_s = {1},
               .prompt_tokens = 10,
               .output_tokens = 2};
  const auto slo = parse_slo({"ttft:500", "tpot:250"});
  ASSERT_TRUE(slo.ok()) << slo.status();
  const json::object report = load_report({fast, slow}, *slo, {50, 99.9});
  const auto number = [&](const char* name) { return report.at(name).to_number<double>(); };
  EXPECT_NEAR(number("duration"), 2, 1e-9);
  EXPECT_NEAR(number("request_throughput"), 1, 1e-9);
  EXPECT_NEAR(number("request_goodput"), 0.5, 1e-9);
  EXPECT_NEAR(number("output_throughput"), 2.5, 1e-9);
  EXPECT_NEAR(number("total_token_throughput"), 12.5, 1e-9);
  EXPECT_NEAR(number("mean_ttft_ms"), 550, 1e-6);
  EXPECT_NEAR(number("mean_tpot_ms"), 600, 1e-6);  // 200 and 1000
  EXPECT_NEAR(number("median_itl_ms"), 200, 1e-6);
  EXPECT_NEAR(number("p99.9_e2el_ms"), 500 + 0.999 * 1500, 1e-6);
}

TEST(LoadReport, SloWords) {
  for (const char* bad : {"ttft", "ttft:", "ttft:x", "ttft:-1", "itl:5", "ttft:5s"})
    EXPECT_FALSE(parse_slo({bad}).ok()) << bad;
  EXPECT_FALSE(parse_slo({})->is_set());
}

}  // namespace
}  // namespace nereid::cli
