// From executor responses to the output tensors of the tensorrt_llm model.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "backend/common/triton.h"
#include "backend/tensorrtllm/request_reader.h"
#include "backend/tensorrtllm/whole_characters.h"
#include "base/clock.h"
#include "nereid/executor.h"

namespace nereid::backend {

// What is known of one sequence (or the beams of one request) between its responses: streamed
// tokens leave in groups of whole characters, and what belongs to a token leaves with it.
struct SequenceState {
  explicit SequenceState(std::shared_ptr<const text::Tokenizer> tokenizer)
      : characters(std::move(tokenizer)) {}
  WholeCharacters characters;
  std::vector<float> log_probs;                     // of all tokens so far
  std::deque<std::vector<TokenLogProb>> held_tops;  // of tokens held back
  std::vector<float> held_logits;
  size_t num_sent = 0;  // tokens
};

// One item of a batch on its way through the executor.
struct ActiveItem {
  GenerationRequest generation;  // without the prompt and the lists that the executor has now
  std::vector<TokenId> prompt;   // what goes in front of each output; empty when nothing does
  int64_t batch_index = 0, batch = 1;
  std::vector<SequenceState> sequences;  // by sequence index, grown with their first response
  std::shared_ptr<const std::vector<float>> context_logits;  // until they are sent
  std::shared_ptr<const PromptLogProbs> prompt_log_probs;    // likewise
  int64_t num_tokens_sent = 0;  // in all rows of all responses, prompts left out
  int64_t num_generated = 0;    // by all sequences and beams that ended
  Time last_token{};            // of a stream; zero: none came yet
  RequestId executor_id = 0;    // 0 until enqueue returned
  bool over = false;
};

class ResponseWriter {
 public:
  // `settings` must outlive the writer. Without a tokenizer streamed tokens leave one by one.
  ResponseWriter(const ModelSettings& settings, int32_t vocab_size,
                 std::shared_ptr<const text::Tokenizer> tokenizer)
      : settings_(settings),
        vocab_size_(vocab_size),
        tokenizer_(std::move(tokenizer)),
        fills_in_(settings.output("cum_log_probs") != nullptr &&
                  settings.output("sequence_index") == nullptr) {}

  // InvalidArgument when the configuration gives logits another type than FP32 or FP16.
  Status check() const;

  // Bytes that the logits of a request take until they are sent.
  uint64_t logits_bytes(const nereid::Request& request) const;

  // The tensors of one response, in the order that clients know; empty when there is nothing to
  // send yet. `response` must be a result.
  std::vector<Output> write(const Request& request, ActiveItem& item, Response& response) const;

 private:
  struct Rows;
  Rows rows_of(ActiveItem& item, Response& response, SequenceState& state) const;
  void add_logits(const Request& request, ActiveItem& item, const Response& response, Rows& rows,
                  std::vector<Output>& out) const;
  void add_log_probs(const Request& request, const ActiveItem& item, const Response& response,
                     const Rows& rows, std::vector<Output>& out) const;
  void add_prompt_log_probs(const Request& request, ActiveItem& item,
                            std::vector<Output>& out) const;
  void add_numbers(const Request& request, const ActiveItem& item, const Response& response,
                   std::vector<Output>& out) const;
  bool wants(const Request& request, const char* name) const;
  // A wanted output that the client did not switch on: zeros of that shape, or nothing.
  void add_absent(const Request& request, const char* name, Shape shape,
                  std::vector<Output>& out) const;
  using Logits = std::shared_ptr<const std::vector<float>>;
  Output logits_output(const char* name, Shape shape, Logits values) const;

  const ModelSettings& settings_;
  int32_t vocab_size_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  // Configurations of v0.6 to v0.13: zeros stand for log-probabilities and logits that were not
  // asked for, and the postprocessing models of then take them as mandatory inputs.
  bool fills_in_;
};

// nereid_finish_reason with the last response of a sequence ("end_id", "length", ...; of each beam,
// joined by commas), and with usage_parameters what the engine counts of it.
std::vector<ResponseParameter> response_parameters(const ActiveItem& item,
                                                   const Response& response);

}  // namespace nereid::backend
