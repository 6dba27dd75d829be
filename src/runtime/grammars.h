// Grammars that requests name, compiled for the model's vocabulary.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/queue.h"
#include "base/status.h"
#include "nereid/request.h"
#include "runtime/fair_jobs.h"
#include "runtime/token_bans.h"
#include "text/grammar/grammar.h"
#include "text/grammar/guided_output.h"
#include "text/tokenizer.h"

namespace nereid::runtime {

// Keeps the latest by their text, refusals too. What takes longer than a millisecond is compiled
// by two threads: tenants by turns (FairJobs, a try costs the steps that it may take), of a tenant
// the texts with few steps first, equal texts once for all who wait, and only as long as somebody
// waits. Safe from many threads.
class Grammars {
  struct Waiter;

 public:
  // OK, or why the guide was not made. Called on a thread of this object, which it must not block,
  // or within start() or somebody else's order().
  using Done = std::function<void(const Status&)>;

  // A guide that is ready or being made. Work on it ends when the last holder lets go of the guide.
  struct Order {
    std::shared_ptr<text::Guide> guide;  // null: the request needs none
    std::shared_ptr<Waiter> waiter;      // null: the guide is ready
  };

  static constexpr size_t kMostWaiting = 64;                 // texts
  static constexpr int64_t kMostBytes = int64_t{192} << 20;  // of all grammars in use

  // `tokenizer` may be null; then no request may need a guide.
  Grammars(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t vocab_size);
  ~Grammars();  // calls nobody any more

  // For guided_decoding and reasoning of a checked request. InvalidArgument: what is wrong with the
  // text, as far as it is known by now, or no token is left to begin with. Unavailable: too many
  // texts wait, of which no other tenant has more, or the grammars in use hold too much.
  StatusOr<Order> order(const Request& request);
  // Of an order that has a waiter, once. The guide is filled when `done` is told OK.
  void start(const Order& order, Done done);

  int64_t num_compiled() const;  // how often making a grammar of a text was begun

 private:
  static constexpr size_t kMostKept = 16, kMostRefused = 256;

  using Key = std::array<unsigned char, 32>;  // SHA-256 of type and text
  using GrammarOr = StatusOr<std::shared_ptr<text::Grammar>>;

  // What a guide needs beside its grammar.
  struct Wishes {
    std::optional<ReasoningConfig> reasoning;
    std::vector<TokenId> end_ids;
    TokenBits left;  // of the first token, whose position is `position`
    int32_t position = 0;
  };
  struct Waiter {
    std::weak_ptr<text::Guide> guide;
    Wishes wishes;
    uint64_t tenant = 0;
    Done done;                     // null before start()
    std::optional<Status> result;  // that `done` was not told of
  };
  // A text to compile, or a guide to finish.
  struct Job {
    bool compiles = true;
    Key key{};
    GuidedDecoding wanted;
    std::shared_ptr<text::Grammar> grammar;  // of a guide to finish; null: it has none
    int64_t steps = 0;                       // that making the grammar may take in this turn
    std::vector<std::shared_ptr<Waiter>> waiters;
  };
  struct Kept {
    std::shared_ptr<text::Grammar> grammar;
    uint64_t used = 0;  // when, in calls
  };

  static Key key_of(const GuidedDecoding& wanted);
  std::shared_ptr<const text::TokenTrie> tokens(bool may_make);
  Wishes wishes_of(const Request& request) const;
  Status finish(const Wishes& wishes, std::shared_ptr<text::Grammar> grammar, text::Effort& effort,
                text::Guide& guide);

  GrammarOr known(const Key& key);
  GrammarOr try_now(const Key& key, const GuidedDecoding& wanted);
  GrammarOr compile(const GuidedDecoding& wanted, text::WorkLimit& work);
  GrammarOr keep(const Key& key, GrammarOr made);
  void forget_unused();
  std::shared_ptr<text::Guide> new_guide();
  Status queue(Job job, const std::shared_ptr<Waiter>& waiter);

  // The caller holds the mutex.
  static bool is_wanted(const Job& job);
  void drop_unwanted();
  void enter(const std::shared_ptr<Job>& job);
  StatusOr<std::vector<std::shared_ptr<Waiter>>> make_room(uint64_t tenant);

  void run(int64_t most_steps);
  void work(const std::shared_ptr<Job>& job);
  void tell(Job& job, const GrammarOr& made);
  void tell(Waiter& waiter, const Status& status);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int32_t vocab_size_;
  const std::shared_ptr<text::GrammarAccount> account_ = std::make_shared<text::GrammarAccount>(0);
  const std::shared_ptr<Queue<std::unique_ptr<text::Guide>>> bin_ =
      std::make_shared<Queue<std::unique_ptr<text::Guide>>>();  // to be freed by a thread
  std::mutex tokens_mutex_;
  std::shared_ptr<const text::TokenTrie> tokens_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::map<Key, Kept> kept_;
  std::map<Key, Status> refused_;
  std::deque<Key> refused_order_;                  // oldest first
  std::map<Key, std::shared_ptr<Job>> compiling_;  // texts that wait or are worked on
  FairJobs<std::shared_ptr<Job>> queue_;           // in the lines of all tenants that wait
  uint64_t num_uses_ = 0;
  int64_t num_compiled_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace nereid::runtime
