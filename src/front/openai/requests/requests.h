// The two completion requests as checked values. Field meanings: docs of the OpenAI API, with the
// extensions that vLLM and trtllm-serve share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "front/openai/error.h"
#include "front/openai/requests/fields.h"
#include "front/protection/byte_budget.h"
#include "front/translate/context_rules.h"
#include "tensor/dtype.h"

namespace nereid::front {

// The grammar that constrains the output, as values of the engine's inputs.
struct GrammarField {
  std::string type;  // for guided_decoding_guide_type
  std::string text;  // for guided_decoding_guide; may be empty
};

inline constexpr int64_t kFitContext = -1;

// The reasoning part before the answer, as values of the engine's inputs.
struct Reasoning {
  std::string open, close;            // for reasoning_open, reasoning_close
  bool begun = false;                 // for reasoning_begun
  std::optional<int64_t> max_tokens;  // for max_reasoning_tokens
};

// Sampling options that a checkpoint may have defaults for; absent: set by neither
// request nor checkpoint.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, top_k, min_p, repetition_penalty;
};

inline constexpr double kLeastTemperature = 1e-5;  // smaller temperatures mean greedy

struct SamplingOptions {
  SamplingDefaults said;     // set by the request
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = 0;  // 0: off
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  // absent: until the context is full
  // Keeps only the prompt's last tokens; absent: all. kFitContext: as many as leave
  // room for max_tokens.
  std::optional<int64_t> max_prompt_tokens;
  ContextRules context;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;  // at most kMaxStopStrings, none empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_text = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool detokenize = true;                  // false: ids without text
  std::vector<int32_t> allowed_token_ids;  // empty: all

  int64_t n = 1;                 // sequences returned for each prompt
  int64_t best_of = 1;           // sequences sampled, at least n; the likeliest n are returned
  bool use_beam_search = false;  // best_of beams instead of samples
  double length_penalty = 1.0;
  int64_t early_stopping = 1;  // 1: with the first n hypotheses; 0: heuristic; 2: never early
  double min_p = 0;
  double top_p_min = 0;
  double repetition_penalty = 1.0;  // counts prompt and output
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<int64_t> prompt_ignore_length;  // absent: both count the output only
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> bad_words;
  std::vector<std::vector<int32_t>> bad_word_ids;  // of bad_words, once the model is known
  bool log_probs = false;
  int64_t num_top_log_probs = 0;  // likeliest tokens at each position
  // Likeliest tokens at each position of the prompt; absent: no log-probabilities of the prompt.
  std::optional<int64_t> num_prompt_log_probs;
  bool tokens_as_ids = false;  // "token_id:7" instead of a token's text
  std::optional<GrammarField> guide;
  std::optional<Reasoning> reasoning;   // part of the output before the grammar applies
  std::vector<int32_t> decoder_prompt;  // of an encoder-decoder model; empty: its usual one
  std::optional<double> priority;
  std::string cache_salt;
  std::optional<uint64_t> lora_task_id;  // of the adapter named as model
  std::string lora_folder;               // of an adapter loaded by a request

  // Whether tokens can be sent as they come: the returned sequences do not depend on later tokens.
  bool can_stream() const { return !use_beam_search && best_of == n; }
};

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of all stop strings of a request
inline constexpr size_t kMaxAllowedTokens = 4096;
inline constexpr size_t kMaxPrompts = 128;
inline constexpr size_t kMaxPictures = 64;  // of a request
inline constexpr size_t kMaxEmbeddingInputs = 2048;
inline constexpr size_t kMaxPairBytes = 16 << 20;  // of all pairs of a score request
inline constexpr int64_t kMaxSequences = 128;      // prompts times best_of
inline constexpr int64_t kMaxTopLogProbs = 20;
// Entries for the tokens of all prompts of a request.
inline constexpr int64_t kMaxPromptLogProbs = 1 << 17;

struct CommonOptions {
  std::string model;  // empty: the served model
  bool stream = false;
  bool include_usage = false;               // a last chunk with usage
  bool continuous_usage_stats = false;      // usage in every chunk
  std::string request_id;                   // part of the answer's id; empty: a random one
  std::optional<int64_t> prompt_log_probs;  // likeliest tokens at each of the prompt's
  bool return_token_ids = false;            // ids of prompt and output beside the text
  std::vector<std::string> unknown;         // members of the request that were not read
  std::string warning;  // about a field that is accepted but not fully honoured; empty: none
  SamplingOptions sampling;
};

// At most 128 ASCII characters without blanks; may be empty.
bool is_request_id(std::string_view text);

// Embeddings that replace those of a prompt's tokens.
struct PromptRows {
  int64_t width = 0;
  std::vector<BF16> values;  // [size(), width]
  BudgetShare held;          // of the values, here and in the engine's request

  int64_t size() const { return std::ssize(values) / width; }
};
using PromptRowsPtr = std::shared_ptr<const PromptRows>;

using Prompt = std::variant<std::string, std::vector<int32_t>, PromptRowsPtr>;

// A picture of a request.
struct PictureSource {
  std::string where;  // the field, for errors
  json::string url;   // data:, https: or http:
};

// Options of an encoder-decoder model; "": absent.
struct TranslationOptions {
  std::string source, target;         // languages
  std::optional<int64_t> forced_bos;  // second token of the decoder's prompt

  bool empty() const { return source.empty() && target.empty() && !forced_bos; }
};

struct CompletionRequest {
  CommonOptions common;
  TranslationOptions translation;
  std::string suffix;           // text behind the requested one; empty: none
  std::vector<Prompt> prompts;  // one choice each; never empty, none empty
  bool echo = false;
  bool prompt_only = false;  // one token is sampled, and left out
  bool add_special_tokens = true;
  std::vector<PictureSource> pictures;  // of the only prompt, a text
};

struct EmbeddingRequest {
  CommonOptions common;
  std::vector<Prompt> inputs;  // never empty, none empty
  bool add_special_tokens = true;
  bool normalize = true;              // scale to length 1
  bool base64 = false;                // little-endian floats in base64, instead of numbers
  std::optional<int64_t> dimensions;  // leading values of the embedding; absent: all
};

// Pairs of texts to score.
struct ScoreRequest {
  CommonOptions common;
  std::vector<std::string> first;   // one for all pairs, or one per pair
  std::vector<std::string> second;  // never empty
  bool activates = true;            // sigmoid scores in (0, 1), else logits

  size_t size() const { return second.size(); }
  // The model's input: both texts of a pair, concatenated.
  std::string pair(size_t i) const { return first[first.size() == 1 ? 0 : i] + second[i]; }
};

// Documents by their fit to a query.
struct RerankRequest : ScoreRequest {  // first: the query
  size_t num_wanted = 0;               // the best ones, at most as many as there are
  bool returns_documents = true;
};

// tool_choice.
enum class ToolUse { kNone, kAuto, kRequired, kNamed };

struct ChatRequest {
  CommonOptions common;
  json::object context;  // the template's variables: messages, tools, ...
  ToolUse tool_use = ToolUse::kNone;
  std::string named_tool;         // for kNamed
  bool parallel_calls = true;     // false: calls after the first are dropped
  bool include_reasoning = true;  // false: reasoning is left out of the answer
  // Limit after which reasoning is closed; absent: none.
  std::optional<int64_t> max_reasoning_tokens;
  bool continues_last = false;  // the model continues the last message
  bool add_special_tokens = false;
  std::optional<std::string> chat_template;        // replaces the model's
  std::optional<std::vector<int32_t>> prompt_ids;  // replaces the rendered messages
  std::string echo;  // beginning of the answer: the last message, if echo is requested
  // Parts {"type": "image", "picture": i} in the context's messages stand for these.
  std::vector<PictureSource> pictures;

  // The tools that the model may call; null: none.
  const json::array* tools() const {
    return tool_use == ToolUse::kNone ? nullptr : &context.at("tools").get_array();
  }
};

// Result or error. (Not StatusOr: errors have the field's name.)
template <class T>
using Parsed = std::variant<T, ApiError>;

// `body` is the request text. Unknown fields are listed; unsupported known fields are refused by
// name unless they have their neutral value. `memory` is for the JSON.
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   json::storage_ptr memory = {});
Parsed<ChatRequest> parse_chat_request(std::string_view body, json::storage_ptr memory = {});
Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body,
                                                 json::storage_ptr memory = {});
Parsed<ScoreRequest> parse_score_request(std::string_view body, json::storage_ptr memory = {});
Parsed<RerankRequest> parse_rerank_request(std::string_view body, json::storage_ptr memory = {});

// Their known fields.
FieldUses completion_fields();
FieldUses chat_fields();
FieldUses embedding_fields();
FieldUses score_fields();
FieldUses rerank_fields();

}  // namespace nereid::front
