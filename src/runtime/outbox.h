// Turns engine news into responses on a thread of its own: stop strings, trimming, callbacks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/queue.h"
#include "nereid/executor.h"
#include "runtime/inbox.h"
#include "runtime/progress.h"
#include "sched/scheduler.h"
#include "text/tokenizer.h"

namespace nereid::runtime {

// The part of a request that the outbox needs.
struct Subscription {
  RequestId id = 0;
  ResponseCallback callback;
  bool streaming = false;
  std::vector<TokenId> echo;  // goes before the first output token: the prompt, or nothing
  int32_t num_input_tokens = 0;
  int32_t min_tokens = 0;  // output tokens in whose text no stop string is looked for
  std::vector<std::string> stop_strings;
};

// News of one turn of the engine loop, in the order of events.
struct NewsBatch {
  Time time;  // when the host learned the tokens
  std::vector<sched::RowNews> news;
};

class Outbox {
 public:
  // `tokenizer` may be null when no subscription has stop strings. `inbox` hears of stop strings
  // found; both references must outlive the outbox.
  Outbox(std::shared_ptr<const text::Tokenizer> tokenizer, Inbox& inbox, Progress& progress);
  ~Outbox();  // delivers what is queued, then joins

  // Before the engine hears of the request, so that the subscription is there when its first news
  // comes.
  void open(Subscription subscription);
  void post(NewsBatch batch);

 private:
  struct Client;
  using Item = std::variant<Subscription, NewsBatch>;

  void run();
  void begin(Subscription subscription);
  void deliver(Client& client, const sched::RowNews& news, Time time);
  void send(Client& client, std::vector<TokenId> fresh, FinishReason reason);
  void send_final(Client& client, Response response);
  void call(Client& client, Response response);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  Inbox& inbox_;
  Progress& progress_;
  Queue<Item> items_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Client>> clients_;  // outbox thread only
  std::thread thread_;
};

}  // namespace nereid::runtime
