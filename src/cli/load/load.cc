#include "cli/load/load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "base/clock.h"
#include "base/json_members.h"
#include "base/progress.h"
#include "base/rng.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{256} << 20;
constexpr size_t kShownErrorBytes = 200;

Time deadline_in(double timeout_s) {
  return now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout_s));
}

std::vector<std::pair<std::string, std::string>> headers_of(const LoadOptions& options) {
  std::vector<std::pair<std::string, std::string>> headers = {{"Content-Type", "application/json"}};
  if (!options.api_key.empty()) headers.emplace_back("Authorization", "Bearer " + options.api_key);
  return headers;
}

// Reads one answer as it comes.
class Reader {
 public:
  Reader(const LoadOptions& options, Time start, Outcome& outcome)
      : options_(options), start_(start), outcome_(outcome) {}

  void take(std::string_view piece) {
    if (!error_.ok()) return;
    if (head_.size() < kShownErrorBytes) head_ += piece.substr(0, kShownErrorBytes);
    if (options_.streaming) {
      const Status fed = events_.feed(piece, [this](std::string_view data) { take_event(data); });
      if (error_.ok()) error_ = fed;
    } else if (whole_.size() + piece.size() > kMaxAnswerBytes) {
      error_ = resource_exhausted("an answer of more than {} bytes", kMaxAnswerBytes);
    } else {
      whole_ += piece;
    }
  }

  // To be called after the last byte; `status` is HTTP's.
  void finish(int status) {
    if (status != 200) {
      outcome_.error = fmt::format("HTTP {}: {}", status, head_);
    } else if (!error_.ok()) {
      outcome_.error = message(error_);
    } else if (options_.streaming) {
      if (!is_done_ && outcome_.error.empty()) outcome_.error = "the stream ended without [DONE]";
    } else {
      take_answer();
    }
    if (outcome_.output_tokens == 0) outcome_.output_tokens = num_texts_;
  }

 private:
  void take_event(std::string_view data) {
    const double at = seconds(now() - start_);
    if (data == "[DONE]") {
      is_done_ = true;
      return;
    }
    const auto event = parse_json(data);
    if (!event.ok()) {
      error_ = invalid_argument("an event is no JSON: {}", data.substr(0, kShownErrorBytes));
      return;
    }
    if (const json::value* failure = member(*event, "error"); failure && !failure->is_null()) {
      outcome_.error = json::serialize(*failure).substr(0, kShownErrorBytes);
      return;
    }
    take_usage(*event);
    if (!brings_text(*event)) return;
    if (num_texts_++ == 0) {
      outcome_.first_s = at;
    } else {
      outcome_.gaps_s.push_back(at - last_text_s_);
    }
    last_text_s_ = at;
  }

  static bool brings_text(const json::value& event) {
    return std::ranges::any_of(array_member(event, "choices"), [](const json::value& choice) {
      const json::object& delta = object_member(choice, "delta");
      return !text_member(choice, "text").empty() || !text_member(delta, "content").empty() ||
             !text_member(delta, "reasoning_content").empty() ||
             !text_member(delta, "reasoning").empty() || !array_member(delta, "tool_calls").empty();
    });
  }

  void take_usage(const json::value& event) {
    const json::value& usage = member_or_null(event, "usage");
    if (!usage.is_object()) return;
    if (const int64_t count = integer_member(usage, "prompt_tokens"); count > 0)
      outcome_.prompt_tokens = count;
    outcome_.output_tokens = integer_member(usage, "completion_tokens");
  }

  void take_answer() {
    outcome_.first_s = seconds(now() - start_);
    const auto answer = parse_json(whole_);
    if (!answer.ok()) {
      outcome_.error = fmt::format("the answer is no JSON: {}", head_);
      return;
    }
    take_usage(*answer);
    num_texts_ = 1;
  }

  const LoadOptions& options_;
  const Time start_;
  Outcome& outcome_;
  front::EventParser events_;
  std::string head_, whole_;
  Status error_;
  double last_text_s_ = 0;
  int64_t num_texts_ = 0;
  bool is_done_ = false;
};

void send_one(const LoadOptions& options, const BenchRequest& request, Time start,
              Outcome& outcome) {
  front::HttpCall call{
      .path = options.endpoint == Endpoint::kChat ? "/v1/chat/completions" : "/v1/completions",
      .headers = headers_of(options),
      .body = request_body(options, request)};
  outcome.prompt_tokens = static_cast<int64_t>(request.input_ids.size());
  Reader reader(options, start, outcome);
  outcome.begin_s = seconds(now() - start);
  const auto answer = send_call(
      options.url, call, deadline_in(options.timeout_s),
      [&reader](std::string_view piece) { reader.take(piece); }, options.tls.get());
  outcome.end_s = seconds(now() - start);
  if (answer.ok()) {
    reader.finish(answer->status);
  } else {
    outcome.error = message(answer.status());
  }
}

}  // namespace

std::string request_body(const LoadOptions& options, const BenchRequest& request) {
  json::object body = {{"model", options.model}};
  if (options.endpoint == Endpoint::kChat) {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", request.prompt}}};
  } else if (request.input_ids.empty()) {
    body["prompt"] = request.prompt;
  } else {
    body["prompt"] = json::value_from(request.input_ids);
  }
  if (request.output_tokens > 0) body["max_tokens"] = request.output_tokens;
  body["temperature"] = 0;
  if (options.ignore_eos) body["ignore_eos"] = true;
  if (options.streaming) {
    body["stream"] = true;
    body["stream_options"] = json::object{{"include_usage", true}};
  }
  for (const auto& [name, value] : options.extra_body) body[name] = value;
  return json::serialize(body);
}

std::vector<double> arrivals(int64_t count, double requests_per_s, uint64_t seed) {
  constexpr uint64_t kArrivals = 0x617272;  // a random stream of its own
  std::vector<double> out;
  double at = 0;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(at);
    if (requests_per_s <= 0) continue;
    const double draw =
        (static_cast<double>(philox(seed, static_cast<uint64_t>(i), kArrivals)[0]) + 0.5) * 0x1p-32;
    at -= std::log(draw) / requests_per_s;
  }
  return out;
}

std::vector<Outcome> run_load(const LoadOptions& options,
                              const std::vector<BenchRequest>& requests) {
  std::vector<Outcome> outcomes(requests.size());
  const std::vector<double> due =
      arrivals(static_cast<int64_t>(requests.size()), options.requests_per_s, options.seed);
  int64_t num_threads = std::min(static_cast<int64_t>(requests.size()), kMaxLoadThreads);
  if (options.max_concurrency > 0) num_threads = std::min(num_threads, options.max_concurrency);
  std::atomic<size_t> next{0};
  const Time start = now();
  ProgressBar bar("requests", std::ssize(requests), ProgressUnit::kCount);
  const auto client = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      outcomes[i].planned_s = due[i];
      std::this_thread::sleep_until(
          start + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(due[i])));
      send_one(options, requests[i], start, outcomes[i]);
      bar.add(1);
    }
  };
  std::vector<std::jthread> clients;
  for (int64_t i = 0; i < num_threads; ++i) clients.emplace_back(client);
  clients.clear();  // joins all threads
  return outcomes;
}

StatusOr<std::string> first_model(const LoadOptions& options) {
  std::string body;
  const front::HttpCall call{.method = "GET", .path = "/v1/models", .headers = headers_of(options)};
  const auto add = [&body](std::string_view piece) {
    if (body.size() < kMaxAnswerBytes) body += piece;
  };
  ASSIGN_OR_RETURN(
      const front::HttpAnswer answer,
      send_call(options.url, call, deadline_in(options.timeout_s), add, options.tls.get()));
  if (answer.status != 200)
    return unavailable("GET /v1/models: HTTP {}: {}", answer.status,
                       body.substr(0, kShownErrorBytes));
  ASSIGN_OR_RETURN(const json::value document, parse_json(body));
  const json::array& list = array_member(document, "data");
  std::string id = list.empty() ? "" : text_member(list.front(), "id");
  if (id.empty()) return not_found("GET /v1/models: names no model; give one with --model");
  return id;
}

}  // namespace nereid::cli
