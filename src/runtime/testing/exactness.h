// Test only: the exactness suite. Row: a request with one feature; column: a way to run it;
// outcome: everything the client gets that must not depend on the column.
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
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime::exactness {

// One sequence or beam, all its responses joined.
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
  std::vector<float> context_logits, embedding, prompt_log_probs, attention_scores;
  std::vector<float> encoder_output;
  std::vector<std::vector<TokenLogProb>> prompt_top_log_probs;
  int num_responses = 0;
};

// Empty if equal bit for bit, else the first difference. `num_responses` may differ.
std::string difference(const Outcome& expected, const Outcome& got);

// Sends requests and joins their responses; checks the public header's guarantees for streams. Must
// outlive the executor's callbacks.
class Client {
 public:
  // 0: refused, which is a test failure.
  RequestId send(Executor& executor, const Request& request);
  Outcome wait(RequestId id);
  Outcome run(Executor& executor, const Request& request) { return wait(send(executor, request)); }

 private:
  struct Pending {
    bool replaces = false;  // each response holds all tokens so far
    bool done = false;
    Outcome outcome;
  };

  void take(Pending& pending, Response response);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, std::shared_ptr<Pending>> pending_;
};

// Material for a row's request.
struct Aids {
  std::vector<TokenId> greedy;  // greedy output of the row's prompt without features
  const text::Tokenizer& tokenizer;
  const Executor& executor;
  std::function<std::vector<TokenId>(std::string_view)> tokens_of;  // tokens of an earlier row
};

struct Row {
  const char* name;
  const char* base;  // row whose outcome must differ; null: none
  int prompt = 0;    // index in prompts()
  std::function<void(Request&, const Aids&)> set;
  bool streams = true;  // false: best_of, and rows with a single response
};

// Prompts longer than a block: one a multiple of 16 tokens, the others not.
std::vector<std::vector<TokenId>> prompts(const text::Tokenizer& tokenizer);

std::span<const Row> rows();

}  // namespace nereid::runtime::exactness
