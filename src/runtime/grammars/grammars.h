// Grammars of requests, compiled for the model's vocabulary.
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
#include "runtime/grammars/fair_jobs.h"
#include "runtime/grammars/token_bans.h"
#include "text/grammar/grammar.h"
#include "text/grammar/guided_output.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {

// Caches grammars by text, refusals included. Compilations of more than about a millisecond run on
// two threads: equal texts once, few steps first, only while a request waits. Thread-safe.
class Grammars {
  struct Waiter;

 public:
  // OK, or the error. Called within start(), or on a thread of this object, which must not block.
  using Done = std::function<void(const Status&)>;

  // A guide, ready or being compiled; compiling stops when the last reference to the guide is gone.
  struct Order {
    std::shared_ptr<text::OutputConstraint> guide;  // null: no grammar constraint
    std::shared_ptr<Waiter> waiter;                 // null: the guide is ready
  };

  static constexpr size_t kMostWaiting = 64;                 // texts
  static constexpr int64_t kMostBytes = int64_t{192} << 20;  // of all grammars in use

  // `tokenizer` may be null if no request has a grammar.
  Grammars(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t vocab_size);
  ~Grammars();  // after it `done` is not called

  // For guided_decoding and reasoning of a checked request. InvalidArgument: a fault of the text,
  // as far as found in time, or no token can come first. Unavailable: too many texts wait, or the
  // grammars in use exceed kMostBytes.
  StatusOr<Order> order(const Request& request);
  // For an order with a waiter, once. On `done(OK)` the guide is filled.
  void start(const Order& order, Done done);

  int64_t num_compiled() const;  // compilations started

 private:
  static constexpr size_t kMostKept = 16, kMostRefused = 256;

  using Key = std::array<unsigned char, 32>;  // SHA-256 of type and text
  using GrammarOr = StatusOr<std::shared_ptr<text::Grammar>>;

  // Inputs of a guide other than its grammar.
  struct Wishes {
    std::optional<ReasoningConfig> reasoning;
    std::vector<TokenId> end_ids;
    TokenBits left;  // tokens allowed first, at `position`
    int32_t position = 0;
  };
  struct Waiter {
    std::weak_ptr<text::OutputConstraint> guide;
    Wishes wishes;
    uint64_t tenant = 0;
    Done done;                     // null before start()
    std::optional<Status> result;  // not yet passed to `done`
  };
  // A text to compile, or a guide to finish.
  struct Job {
    bool compiles = true;
    Key key{};
    GuidedDecoding wanted;
    std::shared_ptr<text::Grammar> grammar;  // to finish: the guide's grammar, null: none
    int64_t steps = 0;                       // limit of this attempt
    std::vector<std::shared_ptr<Waiter>> waiters;
  };
  struct Kept {
    std::shared_ptr<text::Grammar> grammar;
    uint64_t used = 0;  // number of the last call that used it
  };

  static Key key_of(const GuidedDecoding& wanted);
  std::shared_ptr<const text::TokenTrie> tokens(bool may_make);
  Wishes wishes_of(const Request& request) const;
  Status finish(const Wishes& wishes, std::shared_ptr<text::Grammar> grammar,
                text::StepBudget& effort, text::OutputConstraint& guide);

  GrammarOr known(const Key& key);
  GrammarOr try_now(const Key& key, const GuidedDecoding& wanted);
  GrammarOr compile(const GuidedDecoding& wanted, text::WorkLimit& work);
  GrammarOr keep(const Key& key, GrammarOr made);
  void forget_unused();
  std::shared_ptr<text::OutputConstraint> new_guide();
  Status queue(Job job, const std::shared_ptr<Waiter>& waiter);

  // Requires the mutex.
  static bool is_wanted(const Job& job);
  void drop_unwanted();
  void enter(const std::shared_ptr<Job>& job);
  StatusOr<std::vector<std::shared_ptr<Waiter>>> make_room(uint64_t tenant);

  void run(int64_t most_steps);
  void work(const std::shared_ptr<Job>& job);
  void deliver(Job& job, const GrammarOr& made);
  void deliver(Waiter& waiter, const Status& status);

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int32_t vocab_size_;
  const std::shared_ptr<text::GrammarMemory> account_ = std::make_shared<text::GrammarMemory>(0);
  const std::shared_ptr<Queue<std::unique_ptr<text::OutputConstraint>>> bin_ =
      std::make_shared<Queue<std::unique_ptr<text::OutputConstraint>>>();  // guides to free
  std::mutex tokens_mutex_;
  std::shared_ptr<const text::TokenTrie> tokens_;
  mutable std::mutex mutex_;  // guards the following members
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
