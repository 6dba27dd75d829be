// Executor responses to the output tensors of the tensorrt_llm model.
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

// State of one sequence (or of all beams of a request) between its responses: streamed tokens are
// sent in groups of whole characters, and per-token values are sent with their token.
struct SequenceState {
  explicit SequenceState(std::shared_ptr<const text::Tokenizer> tokenizer)
      : characters(std::move(tokenizer)) {}
  WholeCharacters characters;
  std::vector<float> log_probs;                     // of all tokens so far
  std::deque<std::vector<TokenLogProb>> held_tops;  // values of held-back tokens
  std::vector<float> held_logits;
  size_t num_sent = 0;  // tokens sent
};

// One item of a batch in the executor.
struct ActiveItem {
  GenerationRequest generation;  // without the prompt and lists, which the executor has
  std::vector<TokenId> prompt;   // prepended to each output; may be empty
  int64_t batch_index = 0, batch = 1;
  std::vector<SequenceState> sequences;  // by sequence index, added with each one's first response
  std::shared_ptr<const std::vector<float>> context_logits;  // until sent
  std::shared_ptr<const PromptLogProbs> prompt_log_probs;    // until sent
  std::shared_ptr<const AttentionScores> attention_scores;   // until sent
  std::shared_ptr<const EncoderOutput> encoder_output;       // until sent
  int64_t num_tokens_sent = 0;  // sum over all rows of all responses, prompts excluded
  int64_t num_generated = 0;    // sum over ended sequences and beams
  Time last_token{};            // of a stream; zero: none yet
  RequestId executor_id = 0;    // 0 until enqueue() has returned
  bool over = false;
};

class ResponseWriter {
 public:
  // `settings` must outlive the writer. Without a tokenizer each streamed token is sent at once.
  ResponseWriter(const ModelSettings& settings, int32_t vocab_size,
                 std::shared_ptr<const text::Tokenizer> tokenizer)
      : settings_(settings),
        vocab_size_(vocab_size),
        tokenizer_(std::move(tokenizer)),
        fills_in_(settings.output("cum_log_probs") != nullptr &&
                  settings.output("sequence_index") == nullptr) {}

  // InvalidArgument when the configuration gives logits another type than FP32 or FP16.
  Status check() const;

  // Bytes of a request's logits, held until they are sent.
  uint64_t logits_bytes(const nereid::Request& request) const;

  // The tensors of one response, in the order of the configuration templates; empty when nothing
  // can be sent yet. `response` must be a result.
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
  void add_encoder_output(const Request& request, ActiveItem& item, std::vector<Output>& out) const;
  void add_attention_scores(const Request& request, ActiveItem& item,
                            std::vector<Output>& out) const;
  void add_numbers(const Request& request, const ActiveItem& item, const Response& response,
                   std::vector<Output>& out) const;
  bool wants(const Request& request, const char* name) const;
  // Adds an output that the client requested by name but did not switch on: zeros of that shape if
  // fills_in_, else nothing.
  void add_absent(const Request& request, const char* name, Shape shape,
                  std::vector<Output>& out) const;
  using Logits = std::shared_ptr<const std::vector<float>>;
  Output logits_output(const char* name, Shape shape, Logits values) const;

  const ModelSettings& settings_;
  int32_t vocab_size_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  // Configurations of v0.6 to v0.13: zeros take the place of log-probabilities and logits that were
  // not switched on, since the postprocessing models of these versions need them as inputs.
  bool fills_in_;
};

// Parameters of a response: nereid_finish_reason with the last one of a sequence ("end_id",
// "length", ...; joined by commas for beams), and the engine's counts with usage_parameters.
std::vector<ResponseParameter> response_parameters(const ActiveItem& item,
                                                   const Response& response);

}  // namespace nereid::backend
