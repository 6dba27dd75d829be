// Test only: what the exactness suite is made of. A row is a request that uses one feature, a
// column is a way to run it, an outcome is everything a client gets to see that must not depend on
// the column.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/executor.h"
#include "text/tokenizer.h"

namespace nereid::runtime::exactness {

// One sequence, or one beam, all its responses joined.
struct Output {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<std::vector<TokenLogProb>> top_log_probs;
  std::optional<float> cum_log_prob;
  std::vector<float> generation_logits;
  FinishReason reason = FinishReason::kNotFinished;
};

struct Outcome {
  absl::Status status;
  std::vector<std::vector<Output>> sequences;  // [sequence_index][beam]
  std::vector<float> context_logits, embedding, prompt_log_probs;
  std::vector<std::vector<TokenLogProb>> prompt_top_log_probs;
  int num_responses = 0;
};

// Empty when both are equal to the last bit, else what differs first. `num_responses` may differ.
std::string difference(const Outcome& expected, const Outcome& got);

// Sends requests and joins their responses; expects of each stream what the public header promises.
// Must outlive the executor's callbacks.
class Client {
 public:
  // 0 after a refusal, which is a test failure.
  RequestId send(Executor& executor, const Request& request);
  Outcome wait(RequestId id);
  Outcome run(Executor& executor, const Request& request) { return wait(send(executor, request)); }

 private:
  struct Pending {
    bool replaces = false;  // each response holds everything so far
    bool done = false;
    Outcome outcome;
  };

  void take(Pending& pending, Response response);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::shared_ptr<Pending>> pending_;
};

// What a row may use to shape its request.
struct Aids {
  std::vector<TokenId> greedy;  // what the row's prompt gives without any feature
  const text::Tokenizer& tokenizer;
  const Executor& executor;
  std::function<std::vector<TokenId>(std::string_view)> tokens_of;  // what an earlier row gave
};

struct Row {
  const char* name;
  const char* base;  // the row whose outcome must differ, or the feature did nothing; null: none
  int prompt = 0;    // index into prompts()
  std::function<void(Request&, const Aids&)> set;
  bool streams = true;  // best_of and what needs no second response cannot
};

// The prompts' lengths are a block and more: one a multiple of 16, the others not.
std::vector<std::vector<TokenId>> prompts(const text::Tokenizer& tokenizer);

std::span<const Row> rows();

}  // namespace nereid::runtime::exactness
