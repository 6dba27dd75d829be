// Turns engine news into responses on a thread of its own: stop strings, trimming, grouping of the
// sequences of one request, callbacks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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
#include "runtime/sequence_news.h"
#include "text/tokenizer.h"

namespace nereid::runtime {

// The part of a request that the outbox needs.
struct Subscription {
  RequestId id = 0;
  ResponseCallback callback;
  bool streaming = false;
  bool whole = false;         // streaming: each response holds all tokens so far; always for beams
  bool log_probs = false;     // the client wants them; best_of needs them anyway
  int32_t num_sequences = 1;  // the engine's sequences have the ids [id, id + num_sequences)
  int32_t num_returned = 1;   // the best of them, or of the beams
  int32_t beam_width = 1;
  std::vector<TokenId> echo;  // goes before the first output token: the prompt, or nothing
  int32_t num_input_tokens = 0;
  int32_t min_tokens = 0;  // output tokens in whose text no stop string is looked for
  std::vector<std::string> stop_strings;
  std::optional<uint64_t> client_id;
  int64_t logits_bytes = 0;  // most that the responses hold together
};

class Outbox : public NewsSink {
 public:
  // `tokenizer` may be null when no subscription has stop strings. `inbox` is told of stop
  // strings found and of requests that are to end with one of their sequences; both references must
  // outlive the outbox.
  Outbox(std::shared_ptr<const text::Tokenizer> tokenizer, Inbox& inbox, Progress& progress);
  ~Outbox() override;  // delivers what is queued, then joins

  // To be called before the engine has the request, so that the subscription is there when its
  // first news comes.
  void open(Subscription subscription);
  void post(NewsBatch batch) override;
  // The scores that news of the sequence brought or will bring are done. From any thread.
  void scored(RequestId id);

  // Answers all requests, and those that still come, with an error: no more news of theirs counts.
  // Any thread.
  void end_all(const Status& status);

  std::vector<SequenceNews> take_list() override;
  void keep_list(std::vector<SequenceNews> list) override;

 private:
  static constexpr size_t kMostLists = 8;  // kept; more are under way when it is late
  struct Client;
  struct Scored {
    RequestId id = 0;
  };
  struct EndAll {
    Status status;
  };
  using Item = std::variant<Subscription, NewsBatch, Scored, EndAll>;

  void run();
  void begin(Subscription subscription);
  void deliver(SequenceNews& news, Time time);
  void deliver_parked(RequestId id);
  void end(Client& client, const Status& status);
  void close(Client& client);
  void take_in(Client& client, SequenceNews& news, Time time);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  Inbox& inbox_;
  Progress& progress_;
  Queue<Item> items_;
  std::mutex lists_mutex_;
  std::vector<std::vector<SequenceNews>> lists_;  // at most kMostLists
  // One entry for each sequence that news may still come of. Outbox thread only.
  absl::flat_hash_map<RequestId, std::shared_ptr<Client>> clients_;
  Status ended_;  // not OK: why all requests have ended. Likewise
  std::thread thread_;
};

}  // namespace nereid::runtime
