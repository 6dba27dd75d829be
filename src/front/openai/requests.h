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
#include "front/http/byte_budget.h"
#include "front/openai/error.h"
#include "front/openai/fields.h"
#include "front/translate/context_rules.h"
#include "tensor/dtype.h"

namespace nereid::front {

// What the text has to be, in the words of the engine's inputs.
struct Guide {
  std::string type;  // of guided_decoding_guide_type
  std::string text;  // of guided_decoding_guide; may be empty
};

inline constexpr int64_t kWhatFits = -1;

// The part of the output in front of the answer, in the words of the engine's inputs.
struct Reasoning {
  std::string open, close;            // of reasoning_open, reasoning_close
  bool begun = false;                 // of reasoning_begun
  std::optional<int64_t> max_tokens;  // of max_reasoning_tokens
};

// Options that a checkpoint may have defaults for; absent: not set by request or checkpoint.
struct SaidSampling {
  std::optional<double> temperature, top_p, top_k, min_p, repetition_penalty;
};

inline constexpr double kLeastTemperature = 1e-5;  // anything below is greedy

struct SamplingOptions {
  SaidSampling said;         // by the request
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = 0;  // 0: off
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  // absent: until the context is full
  // The last of the prompt; absent: all. kWhatFits: so many that max_tokens have room.
  std::optional<int64_t> max_prompt_tokens;
  ContextRules context;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;  // at most kMaxStopStrings, none empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_text = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool detokenize = true;                  // else there are ids and no text
  std::vector<int32_t> allowed_token_ids;  // empty: all

  int64_t n = 1;                 // sequences returned for each prompt
  int64_t best_of = 1;           // sequences drawn, at least n; the likeliest n are returned
  bool use_beam_search = false;  // best_of beams instead of draws
  double length_penalty = 1.0;
  int64_t early_stopping = 1;  // 1: with the first n hypotheses; 0: heuristic; 2: never early
  double min_p = 0;
  double top_p_min = 0;
  double repetition_penalty = 1.0;  // counts prompt and output
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<int64_t> prompt_ignore_length;  // absent: both count the output only
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<std::string> bad_words;
  std::vector<std::vector<int32_t>> bad_word_ids;  // of these, once the model is known
  bool log_probs = false;
  int64_t num_top_log_probs = 0;  // likeliest tokens at each position
  // Likeliest tokens at each position of the prompt; absent: it has no log-probabilities.
  std::optional<int64_t> num_prompt_log_probs;
  bool tokens_as_ids = false;  // "token_id:7" in the place of a token's text
  std::optional<Guide> guide;
  std::optional<Reasoning> reasoning;  // what the guide does not hold
  std::optional<double> priority;
  std::string cache_salt;
  std::optional<uint64_t> lora_task_id;  // of the adapter that the model's name stands for
  std::string lora_folder;               // of one that a request has loaded

  // Tokens can be handed on as they come: what is returned does not depend on later ones.
  bool can_stream() const { return !use_beam_search && best_of == n; }
};

inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 4096;  // of all stop strings of a request
inline constexpr size_t kMaxAllowedTokens = 4096;
inline constexpr size_t kMaxPrompts = 128;
inline constexpr size_t kMaxEmbeddingInputs = 2048;
inline constexpr size_t kMaxPairBytes = 16 << 20;  // of all pairs of a request to score
inline constexpr int64_t kMaxSequences = 128;      // prompts times best_of
inline constexpr int64_t kMaxTopLogProbs = 20;
// Entries for the tokens of all prompts of a request.
inline constexpr int64_t kMaxPromptLogProbs = 1 << 17;

struct CommonOptions {
  std::string model;  // empty: whatever is served
  bool stream = false;
  bool include_usage = false;               // a last chunk with usage
  bool continuous_usage_stats = false;      // usage in every chunk
  std::string request_id;                   // part of the answer's id; empty: a random one
  std::optional<int64_t> prompt_log_probs;  // likeliest tokens beside each of the prompt's
  bool return_token_ids = false;            // ids of prompt and output beside the text
  std::vector<std::string> unknown;         // members of the request that were not read
  std::string warning;                      // of what is taken and not kept in full; empty: none
  SamplingOptions sampling;
};

// At most 128 characters of ASCII without blanks; nothing counts too.
bool is_request_id(std::string_view text);

// What stands in the place of the embeddings of a prompt's tokens.
struct PromptRows {
  int64_t width = 0;
  std::vector<BF16> values;  // [size(), width]
  BudgetShare held;          // of the values, here and in the engine's request

  int64_t size() const { return std::ssize(values) / width; }
};
using PromptRowsPtr = std::shared_ptr<const PromptRows>;

using Prompt = std::variant<std::string, std::vector<int32_t>, PromptRowsPtr>;

struct CompletionRequest {
  CommonOptions common;
  std::string suffix;           // what comes behind the text that is wanted; empty: nothing
  std::vector<Prompt> prompts;  // one choice each; never empty, none empty
  bool echo = false;
  bool prompt_only = false;  // one token is drawn, and left out
  bool add_special_tokens = true;
};

struct EmbeddingRequest {
  CommonOptions common;
  std::vector<Prompt> inputs;  // never empty, none empty
  bool add_special_tokens = true;
  bool normalize = true;              // to length 1
  bool base64 = false;                // of little-endian floats, instead of numbers
  std::optional<int64_t> dimensions;  // the first of the embedding; absent: all
};

// Pairs of texts whose fit is scored.
struct ScoreRequest {
  CommonOptions common;
  std::vector<std::string> first;   // one for all, or as many as of the other
  std::vector<std::string> second;  // never empty
  bool activates = true;            // scores are between 0 and 1, else any number

  size_t size() const { return second.size(); }
  // What the model reads: both texts of a pair, one behind the other.
  std::string pair(size_t i) const { return first[first.size() == 1 ? 0 : i] + second[i]; }
};

// Documents by their fit to a query.
struct RerankRequest : ScoreRequest {  // first: the query
  size_t num_wanted = 0;               // the best ones, at most as many as there are
  bool returns_documents = true;
};

// What the model may or must do with the tools.
enum class ToolUse { kNone, kAuto, kRequired, kNamed };

struct ChatRequest {
  CommonOptions common;
  json::object context;  // what the template gets: messages, tools, ...
  ToolUse tool_use = ToolUse::kNone;
  std::string named_tool;                       // of kNamed
  bool parallel_calls = true;                   // else calls behind the first are left out
  bool include_reasoning = true;                // else reasoning is left out of the answer
  std::optional<int64_t> max_reasoning_tokens;  // then it is closed; absent: no limit of its own
  bool continues_last = false;                  // the model goes on with the last message
  bool add_special_tokens = false;
  std::optional<std::string> chat_template;        // in the place of the model's
  std::optional<std::vector<int32_t>> prompt_ids;  // in the place of the rendered messages
  std::string echo;  // what the answer begins with: the last message, where that is asked for

  // The tools that the model may call; null: none.
  const json::array* tools() const {
    return tool_use == ToolUse::kNone ? nullptr : &context.at("tools").get_array();
  }
};

// Result or error. (Not StatusOr: errors carry the field's name.)
template <class T>
using Parsed = std::variant<T, ApiError>;

// `body` is the request text. Unknown fields are listed; known fields that do not work yet are
// refused by name unless they have their neutral value. `memory` is for the
// JSON.
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   json::storage_ptr memory = {});
Parsed<ChatRequest> parse_chat_request(std::string_view body, json::storage_ptr memory = {});
Parsed<EmbeddingRequest> parse_embedding_request(std::string_view body,
                                                 json::storage_ptr memory = {});
Parsed<ScoreRequest> parse_score_request(std::string_view body, json::storage_ptr memory = {});
Parsed<RerankRequest> parse_rerank_request(std::string_view body, json::storage_ptr memory = {});

// The fields that these know.
FieldUses completion_fields();
FieldUses chat_fields();
FieldUses embedding_fields();
FieldUses score_fields();
FieldUses rerank_fields();

}  // namespace nereid::front
