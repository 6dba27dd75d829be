// The outbox thread: turns updates of sequences into responses (stop strings, trimming, grouping by
// request) and calls the callbacks.
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
#include "runtime/engine_update.h"
#include "runtime/progress.h"
#include "runtime/requests/inbox.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {

// The part of a request that the outbox needs.
struct Subscription {
  RequestId id = 0;
  ResponseCallback callback;
  bool streaming = false;
  bool whole = false;         // streaming: responses have all tokens so far; always for beams
  bool log_probs = false;     // for the client; best_of computes them anyway
  int32_t num_sequences = 1;  // ids [id, id + num_sequences)
  int32_t num_returned = 1;   // number of best sequences, or beams, to return
  int32_t beam_width = 1;
  std::vector<TokenId> echo;  // precedes the first output token: the prompt, or empty
  int32_t num_input_tokens = 0;
  int32_t min_tokens = 0;  // stop strings are not searched in the first min_tokens output tokens
  std::vector<std::string> stop_strings;
  std::optional<uint64_t> client_id;
  int64_t logits_bytes = 0;  // bound of the responses' logits together
};

class Outbox : public UpdateSink {
 public:
  // `tokenizer` may be null if no subscription has stop strings. `inbox` receives StopStringFound,
  // and Cancel for requests that end with one of their sequences. References must outlive it.
  Outbox(std::shared_ptr<const text::Tokenizer> tokenizer, Inbox& inbox, Progress& progress);
  ~Outbox() override;  // delivers what is queued, then joins

  // Called before the engine gets the request, so that its first update finds the subscription.
  void open(Subscription subscription);
  void post(UpdateBatch batch) override;
  // The scores that update of the sequence brought or will bring are done. From any thread.
  void scored(RequestId id);

  // Answers all requests, also later ones, with an error; later updates are ignored. Thread-safe.
  void end_all(const Status& status);

  std::vector<EngineUpdate> take_list() override;
  void keep_list(std::vector<EngineUpdate> list) override;

 private:
  static constexpr size_t kMostLists = 8;  // kept for reuse; more exist while the outbox is behind
  struct Client;
  struct Scored {
    RequestId id = 0;
  };
  struct EndAll {
    Status status;
  };
  using Item = std::variant<Subscription, UpdateBatch, Scored, EndAll>;

  void run();
  void begin(Subscription subscription);
  void deliver(EngineUpdate& update, Time time);
  void deliver_parked(RequestId id);
  void end(Client& client, const Status& status);
  void close(Client& client);
  void take_in(Client& client, EngineUpdate& update, Time time);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  Inbox& inbox_;
  Progress& progress_;
  Queue<Item> items_;
  std::mutex lists_mutex_;
  std::vector<std::vector<EngineUpdate>> lists_;  // at most kMostLists
  // By sequence id, while updates may arrive. Outbox thread only.
  absl::flat_hash_map<RequestId, std::shared_ptr<Client>> clients_;
  Status ended_;  // not OK: the error of end_all(). Outbox thread only
  std::thread thread_;
};

}  // namespace nereid::runtime
