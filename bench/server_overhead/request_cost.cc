// What the way through the server adds to a request of one token, or to a streamed chat of some:
// its latency over HTTP on an open connection less, by turns, that of the same request to a bare
// executor in this process, from enqueue() to the answer in the caller's hands. And less what the
// executor in that server took, from enqueue() to the callback: then the caller's own wake-up
// counts as the server's. Beside them echoes over the same kind of connection: what the socket and
// its two wake-ups cost on this machine, whatever the server. One echo comes at once; the other,
// like an answer, from a second thread that is busy for as long as the executor takes, while client
// and server sleep.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "../stopwatch.h"
#include "base/testing/source_dir.h"
#include "loopback.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::bench {
namespace {

constexpr char kText[] = "The sea";
constexpr char kReplyEnd[] = "0\r\n\r\n";  // the last chunk of a reply

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string path = "/v2/models/ensemble/generate";
  int port = 0;
  int32_t rounds = 99;
  int32_t requests = 20;
  int32_t threads = 0;
  int32_t chat_tokens = 0;  // of a streamed chat; 0: one token of `path`
};

// The same work for an executor and for a server.
struct Question {
  std::vector<TokenId> prompt;
  int32_t max_tokens = 1;
  bool streaming = false;
  std::string request;  // HTTP
};

StatusOr<Question> question_of(const Options& o) {
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(o.model));
  Question out;
  std::string path = o.path, body, prompt = kText;
  if (o.chat_tokens > 0) {
    const json::array messages = {json::object{{"role", "user"}, {"content", kText}}};
    ASSIGN_OR_RETURN(const auto chat, text::load_chat_template(o.model));
    ASSIGN_OR_RETURN(prompt,
                     chat.render_chat({{"messages", messages}, {"add_generation_prompt", true}}));
    out.max_tokens = o.chat_tokens;
    out.streaming = true;
    path = "/v1/chat/completions";
    body = json::serialize(json::object{{"messages", messages},
                                        {"max_tokens", o.chat_tokens},
                                        {"temperature", 0},
                                        {"ignore_eos", true},
                                        {"stream", true}});
  } else {
    body = fmt::format(R"({{"text_input": "{}", "max_tokens": 1, "end_id": -1}})", kText);
  }
  ASSIGN_OR_RETURN(out.prompt,
                   tokenizer->encode(prompt, {.add_special_tokens = o.chat_tokens == 0}));
  out.request = fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                            path, body.size(), body);
  return out;
}

// Sends back what it gets, to one client: at once, or on a second thread and after `work`.
class Echo {
 public:
  explicit Echo(Duration work = {})
      : work_(work), reader_([this] { read(); }), worker_([this] { answer(); }) {}
  ~Echo() {  // after its client's socket
    reader_.join();
    worker_.join();
  }
  int port() const { return listener_.port(); }
  // From reading to answering, all of them.
  double work_seconds() const { return work_seconds_; }

 private:
  void read() {
    client_.emplace(listener_.accept());
    for (;;) {
      const auto bytes = client_->receive();
      if (bytes.empty()) return texts_.close();
      if (work_ == Duration{}) {
        client_->send(bytes);
      } else {
        texts_.push({std::string(bytes), now()});
      }
    }
  }
  void answer() {
    while (const auto text = texts_.take()) {
      const Time end = now() + work_;
      while (now() < end) continue;
      work_seconds_ = work_seconds_ + seconds(now() - text->second);
      client_->send(text->first);
    }
  }

  const Duration work_;
  LoopbackListener listener_;
  std::optional<Socket> client_;
  Queue<std::pair<std::string, Time>> texts_;
  std::atomic<double> work_seconds_ = 0;
  std::thread reader_, worker_;
};

// Microseconds.
class Latencies {
 public:
  void add(Time begin) { all_.push_back(1e6 * seconds(now() - begin)); }
  double mean() const {
    return std::accumulate(all_.begin(), all_.end(), 0.0) / static_cast<double>(all_.size());
  }

 private:
  std::vector<double> all_;
};

Status ask_executor(Executor& executor, const Question& question, Latencies& out) {
  Request request;
  request.input_token_ids = question.prompt;
  request.max_tokens = question.max_tokens;
  request.streaming = question.streaming;
  const Time begin = now();
  ASSIGN_OR_RETURN(const RequestId id, executor.enqueue(std::move(request)));
  for (;;) {
    const auto responses = executor.await_responses(id);
    RETURN_IF_ERROR(responses.back().status);
    if (responses.back().is_final) break;
  }
  out.add(begin);
  return ok();
}

Status ask_server(Socket& socket, std::string_view request, Latencies& out) {
  std::string reply;
  const Time begin = now();
  socket.send(request);
  while (!reply.ends_with(kReplyEnd)) {
    const auto piece = socket.receive();
    if (piece.empty()) return internal_error("the server closed after '{}'", reply);
    reply += piece;
  }
  out.add(begin);
  if (!reply.starts_with("HTTP/1.1 200")) return internal_error("the server said '{}'", reply);
  return ok();
}

void ask_echo(Socket& socket, std::string_view request, Latencies& out) {
  const Time begin = now();
  socket.send(request);
  for (size_t n = 0; n < request.size();) n += socket.receive().size();
  out.add(begin);
}

struct ExecutorTime {
  double count = 0, microseconds = 0;
};

// What the server's statistics say of all requests so far.
ExecutorTime executor_time(Socket& socket) {
  socket.send("GET /v2/models/tensorrt_llm/stats HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string reply;
  while (!reply.ends_with("]}")) reply += socket.receive();
  const auto number = [&, at = reply.find("\"compute_infer\"")](const char* name) {
    return std::strtod(&reply[reply.find(name, at) + std::strlen(name)], nullptr);
  };
  return {number("\"count\":"), number("\"ns\":") / 1e3};
}

Status measure(const Options& o) {
  ExecutorConfig config;
  config.num_threads = o.threads;
  ASSIGN_OR_RETURN(const auto executor, Executor::create(o.model, config));
  ASSIGN_OR_RETURN(const Question question, question_of(o));
  const std::string& request = question.request;
  Latencies first;
  for (int32_t i = 0; i < o.requests; ++i)
    RETURN_IF_ERROR(ask_executor(*executor, question, first));
  Echo echo, late_echo(std::chrono::microseconds(static_cast<int64_t>(first.mean())));
  Socket served = Socket::connect(o.port), echoed = Socket::connect(echo.port()),
         echoed_late = Socket::connect(late_echo.port());
  std::vector<double> bare, http, wire, late_wire, added, added_to_own;
  for (int32_t round = -1; round < o.rounds; ++round) {
    Latencies of_executor, of_server, of_echo, of_late_echo;
    for (int32_t i = 0; i < o.requests; ++i)
      RETURN_IF_ERROR(ask_executor(*executor, question, of_executor));
    const ExecutorTime before = executor_time(served);
    for (int32_t i = 0; i < o.requests; ++i)
      RETURN_IF_ERROR(ask_server(served, request, of_server));
    const ExecutorTime after = executor_time(served);
    for (int32_t i = 0; i < o.requests; ++i) ask_echo(echoed, request, of_echo);
    const double worked = late_echo.work_seconds();
    for (int32_t i = 0; i < o.requests; ++i) ask_echo(echoed_late, request, of_late_echo);
    if (round < 0) continue;  // warm-up
    bare.push_back(of_executor.mean());
    http.push_back(of_server.mean());
    wire.push_back(of_echo.mean());
    late_wire.push_back(of_late_echo.mean() -
                        1e6 * (late_echo.work_seconds() - worked) / o.requests);
    added.push_back(http.back() - bare.back());
    added_to_own.push_back(http.back() - (after.microseconds - before.microseconds) /
                                             (after.count - before.count));
  }
  const std::string what = o.chat_tokens > 0
                               ? fmt::format("a streamed chat of {} tokens", o.chat_tokens)
                               : "a request of one token";
  fmt::print(
      "{}, {} rounds of {}, medians of their means: a bare executor {:.1f} us, "
      "over HTTP {:.1f} us, {:.1f} us more; {:.1f} us more than the executor in the server, of "
      "which an echo over the same socket takes {:.1f} us, {:.1f} us when it comes as late\n",
      what, o.rounds, o.requests, median(bare), median(http), median(added), median(added_to_own),
      median(wire), median(late_wire));
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("latency that the server adds to a request of one token");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--port", o.port, "HTTP port of a running server of that model")->required();
  app.add_option("--path", o.path, "generate route")->capture_default_str();
  app.add_option("--chat-tokens", o.chat_tokens,
                 "instead: a streamed chat of so many tokens, /v1/chat/completions")
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds")->capture_default_str();
  app.add_option("--requests", o.requests, "of each kind in a round")->capture_default_str();
  app.add_option("--threads", o.threads,
                 "compute threads of the bare executor; 0 = one for each core")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "request_cost: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
