// See chat_api.h.
#include "chat_api.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "base/check.h"
#include "front/http/router.h"
#include "front/http/workers.h"
#include "front/openai/routes.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"
#include "front/testing/fake_triton.h"
#include "front/trace/tracer.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::fuzz {
namespace {

using namespace nereid::front;

constexpr int kMaxSeqLen = 1024;
constexpr int32_t kEnd = 3;  // <|im_end|>
constexpr auto kLongest = std::chrono::seconds(60);

// Posted work runs on the thread that waits for the answer.
class Client final : public Exchange {
 public:
  Client(const char* path, std::string body) {
    request_.method = "POST";
    request_.path = path;
    request_.body = std::move(body);
  }

  Request& request() override { return request_; }
  void post(std::function<void()> work) override {
    {
      std::lock_guard lock(mutex_);
      if (is_gone_) return;  // late output of a cancelled engine
      work_.push_back(std::move(work));
    }
    news_.notify_one();
  }
  void send(Response response) override {
    NEREID_CHECK(!is_over_ && !answer_.is_stream);
    answer_.status = response.status;
    answer_.body = std::move(response.body);
    is_over_ = true;
  }
  void begin_stream(Response head, std::string) override {
    NEREID_CHECK(!is_over_ && !answer_.is_stream);
    answer_.status = head.status;
    answer_.is_stream = true;
  }
  void write(std::string_view text) override {
    NEREID_CHECK(answer_.is_stream && !is_over_);
    answer_.body += text;
  }
  void end() override {
    NEREID_CHECK(answer_.is_stream && !is_over_);
    is_over_ = true;
  }
  void on_disconnect(std::function<void()>) override {}
  bool disconnected() const override { return false; }

  // Until the answer is complete and the engine has let go of the request.
  Answer wait() {
    FakeTriton& fake = FakeTriton::get();
    const auto deadline = std::chrono::steady_clock::now() + kLongest;
    while (!is_over_ || fake.num_live != 0 || fake.num_responses != 0) {
      std::function<void()> work = take();
      if (work) work();
      NEREID_CHECK(work || std::chrono::steady_clock::now() < deadline);
    }
    while (const auto work = take()) work();
    std::deque<std::function<void()>> late;
    std::lock_guard lock(mutex_);
    is_gone_ = true;
    late.swap(work_);
    return std::move(answer_);
  }

 private:
  std::function<void()> take() {
    std::unique_lock lock(mutex_);
    if (!news_.wait_for(lock, std::chrono::microseconds(is_over_ ? 20 : 10000),
                        [&] { return !work_.empty(); }))
      return nullptr;
    auto work = std::move(work_.front());
    work_.pop_front();
    return work;
  }

  Request request_;
  Answer answer_;
  bool is_over_ = false;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> work_;
  bool is_gone_ = false;
};

// The front with a model that writes so.
const Router& front_with(size_t tool_format, size_t reasoning_format) {
  static Workers workers(1);
  static const auto tracer = *Tracer::create(nullptr, {});
  static const auto budget = std::make_shared<ByteBudget>(size_t{64} << 20);
  static std::map<std::pair<size_t, size_t>, std::unique_ptr<Router>> all;
  std::unique_ptr<Router>& router = all[{tool_format, reasoning_format}];
  if (router) return *router;
  OpenAiOptions options;
  options.model_name = "m";
  options.ollama = true;
  options.request_templates = true;
  options.response_store_bytes = size_t{1} << 20;
  options.default_max_tokens = kMaxSeqLen / 2;
  const auto tools = tool_formats();
  const auto reasonings = reasoning_formats();
  options.tool_parser = tool_format < tools.size() ? tools[tool_format].name : "none";
  options.reasoning_parser =
      reasoning_format < reasonings.size() ? reasonings[reasoning_format].name : "none";
  router = std::make_unique<Router>([](ErrorShape, int status, std::string_view message) {
    return Response{status, "text/plain", {}, std::string(message)};
  });
  add_openai_routes(*router, fake_server(), options, tracer, workers, budget);
  return *router;
}

// Bytes that are no text stand for tokens themselves.
std::vector<int32_t> tokens_of(std::string_view words) {
  static const auto tokenizer = *text::Tokenizer::load(FakeTriton::get().tokenizer_dir);
  auto ids = tokenizer->encode(words, {.add_special_tokens = false});
  std::vector<int32_t> out = ids.ok() ? *std::move(ids) : std::vector<int32_t>();
  if (!ids.ok())
    for (const char c : words)
      out.push_back(static_cast<unsigned char>(c) % tokenizer->vocab_size());
  out.push_back(kEnd);
  return out;
}

void check_status(const Answer& answer) {
  // 501: what the model cannot do. 503: no memory in the budget.
  NEREID_CHECK(answer.status == 200 || (answer.status >= 400 && answer.status < 500) ||
               answer.status == 501 || answer.status == 503);
  if (answer.status != 200) NEREID_CHECK(!answer.is_stream && answer.value().is_object());
}

}  // namespace

json::value Answer::value() const {
  auto out = parse_json(body, 1000);
  NEREID_CHECK(out.ok());
  return *std::move(out);
}

std::vector<json::object> Answer::events() const {
  std::vector<json::object> out;
  for (std::string_view rest = body; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("data: ")) line.remove_prefix(6);
    if (line.empty() || line == "[DONE]" || line.starts_with("event: ")) continue;
    const auto value = parse_json(line, 1000);
    NEREID_CHECK(value.ok() && value->is_object());
    out.push_back(value->get_object());
  }
  return out;
}

Answer ask(size_t tool_format, size_t reasoning_format, const char* path, std::string body,
           std::string_view words) {
  FakeTriton& fake = FakeTriton::get();
  static const bool is_set = [&] {
    fake.reset();
    fake.max_seq_len = kMaxSeqLen;
    return true;
  }();
  static_cast<void>(is_set);
  {
    std::lock_guard lock(fake.mutex);
    fake.script = tokens_of(words);
  }
  const auto client = std::make_shared<Client>(path, std::move(body));
  front_with(tool_format, reasoning_format).handle(client);
  Answer answer = client->wait();
  check_status(answer);
  return answer;
}

int run_chat_api(std::string_view input, std::span<const ChatRoute> routes,
                 void (*look)(size_t, size_t, const Answer&)) {
  if (input.size() < 3) return 0;
  constexpr std::string_view kBetween = "\n---\n";
  const auto number = [&](size_t i) { return static_cast<unsigned char>(input[i]); };
  const size_t tool = number(0) % (tool_formats().size() + 1);
  const size_t reasoning = number(1) % (reasoning_formats().size() + 1);
  const ChatRoute& route = routes[(number(2) & 31) % routes.size()];
  const bool wants_answer = (number(2) & 32) != 0;
  input.remove_prefix(3);
  const size_t end = std::min(input.find(kBetween), input.size());
  const std::string_view words = input.substr(std::min(input.size(), end + kBetween.size()));
  std::string body(input.substr(0, end));
  auto parsed = parse_json(body, 1000);
  const Answer as_it_is = ask(tool, reasoning, route.path, body, words);
  const bool is_answered = as_it_is.status == 200;
  if (is_answered && look) look(tool, reasoning, as_it_is);
  if (is_answered && route.said_whole && parsed.ok() && parsed->is_object()) {
    json::object& members = parsed->get_object();
    members.erase("stream_options");
    members["stream"] = false;
    const Answer whole = ask(tool, reasoning, route.path, json::serialize(members), words);
    members["stream"] = true;
    const Answer streamed = ask(tool, reasoning, route.path, json::serialize(members), words);
    NEREID_CHECK(whole.status == streamed.status || !route.streams_all);
    if (whole.status == 200 && streamed.status == 200) {
      NEREID_CHECK(!whole.is_stream && (streamed.is_stream || !route.always_streams));
      NEREID_CHECK(route.said_whole(whole.value().as_object()) ==
                   route.said_streamed(streamed.events()));
    }
  }
  return is_answered == wants_answer ? 0 : -1;
}

const json::object& object_at(const json::object& object, std::string_view key) {
  const json::value* const v = object.if_contains(key);
  NEREID_CHECK(v && v->is_object());
  return v->get_object();
}
const json::array& array_at(const json::object& object, std::string_view key) {
  const json::value* const v = object.if_contains(key);
  NEREID_CHECK(v && v->is_array());
  return v->get_array();
}
std::string text_at(const json::object& object, std::string_view key) {
  const json::value* const v = object.if_contains(key);
  NEREID_CHECK(v && v->is_string());
  return std::string(v->get_string());
}
std::string text_or_none(const json::object& object, std::string_view key) {
  const json::value* const v = object.if_contains(key);
  return v && !v->is_null() ? text_at(object, key) : "";
}

}  // namespace nereid::fuzz
