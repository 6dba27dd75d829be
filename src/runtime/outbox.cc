// Outbox: per-request text state and the delivery of responses.
#include "runtime/outbox.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"

namespace nereid::runtime {

struct Outbox::Client {
  Client(Subscription s, const std::shared_ptr<const text::Tokenizer>& tokenizer)
      : subscription(std::move(s)),
        detokenizer(tokenizer, /*skip_special_tokens=*/true),
        stops(subscription.stop_strings) {}

  // Whether the text that `token` completes contains a stop string.
  bool stops_at(TokenId token) {
    if (subscription.stop_strings.empty()) return false;
    const std::string piece = detokenizer.push(token);
    if (num_output <= subscription.min_tokens) return false;
    return stops.push(piece, /*final=*/false).stopped;
  }

  Subscription subscription;
  text::Detokenizer detokenizer;
  text::StopStrings stops;
  std::vector<TokenId> kept;  // not streaming: everything for the final response
  int32_t num_output = 0;     // tokens taken so far
  bool started = false;       // the echo is out
  bool ended = false;         // the final response is out; the engine's final news may still come
  bool threw = false;         // logged once
  RequestMetrics metrics;
};

Outbox::Outbox(std::shared_ptr<const text::Tokenizer> tokenizer, Inbox& inbox, Progress& progress)
    : tokenizer_(std::move(tokenizer)),
      inbox_(inbox),
      progress_(progress),
      thread_([this] { run(); }) {}

Outbox::~Outbox() {
  items_.close();
  thread_.join();
}

void Outbox::open(Subscription subscription) {
  NEREID_CHECK(tokenizer_ || subscription.stop_strings.empty());
  items_.push(std::move(subscription));
}

void Outbox::post(NewsBatch batch) { items_.push(std::move(batch)); }

void Outbox::run() {
  while (auto items = items_.take_all(/*may_sleep=*/true)) {
    for (Item& item : *items) {
      if (auto* subscription = std::get_if<Subscription>(&item)) {
        begin(std::move(*subscription));
        continue;
      }
      const auto& batch = std::get<NewsBatch>(item);
      for (const sched::RowNews& news : batch.news) {
        const auto found = clients_.find(news.id);
        NEREID_CHECK(found != clients_.end());
        // Callbacks may open new requests, but only through the queue: `found` stays valid.
        if (!found->second->ended) deliver(*found->second, news, batch.time);
        if (news.finished) clients_.erase(found);
      }
    }
  }
}

void Outbox::begin(Subscription subscription) {
  const RequestId id = subscription.id;
  clients_.emplace(id, std::make_unique<Client>(std::move(subscription), tokenizer_));
}

void Outbox::deliver(Client& client, const sched::RowNews& news, Time time) {
  std::vector<TokenId> fresh;
  bool stopped = false;
  for (TokenId token : news.tokens) {
    if (client.num_output++ == 0) client.metrics.first_token = time;
    client.metrics.last_token = time;
    fresh.push_back(token);
    stopped = client.stops_at(token);
    if (stopped) break;
  }
  if (news.finished) {
    const auto first = client.metrics.first_token, last = client.metrics.last_token;
    client.metrics = news.metrics;
    client.metrics.first_token = first;
    client.metrics.last_token = last;
  }
  if (!news.status.ok()) {
    Response failure;
    failure.status = news.status;
    return send_final(client, std::move(failure));
  }
  if (stopped && !news.finished) inbox_.push(StopStringFound{client.subscription.id});
  const FinishReason reason = stopped         ? FinishReason::kStopWords
                              : news.finished ? news.reason
                                              : FinishReason::kNotFinished;
  send(client, std::move(fresh), reason);
}

void Outbox::send(Client& client, std::vector<TokenId> fresh, FinishReason reason) {
  const bool is_final = reason != FinishReason::kNotFinished;
  std::vector<TokenId>& out = client.kept;
  if (!client.started)
    out.insert(out.end(), client.subscription.echo.begin(), client.subscription.echo.end());
  client.started = true;
  out.insert(out.end(), fresh.begin(), fresh.end());
  if (!client.subscription.streaming && !is_final) return;
  Response response;
  SequenceOutput& output = response.outputs.emplace_back();
  output.token_ids = std::exchange(client.kept, {});
  output.finish_reason = reason;
  output.num_output_tokens = client.num_output;
  response.num_input_tokens = client.subscription.num_input_tokens;
  if (!is_final) return call(client, std::move(response));
  response.metrics = client.metrics;
  send_final(client, std::move(response));
}

void Outbox::send_final(Client& client, Response response) {
  client.ended = true;
  response.is_final = response.is_sequence_final = true;
  call(client, std::move(response));
  client.subscription.callback = nullptr;  // what it holds is let go before drain() may return
  progress_.closed();
}

void Outbox::call(Client& client, Response response) {
  response.request_id = client.subscription.id;
  try {
    client.subscription.callback(std::move(response));
  } catch (...) {
    if (!std::exchange(client.threw, true))
      log_error("the callback of request {} throws; the executor goes on", client.subscription.id);
  }
}

}  // namespace nereid::runtime
