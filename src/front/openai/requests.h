// The two completion requests as checked values. Field meanings: docs of the OpenAI API, with the
// extensions that vLLM and trtllm-serve share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "front/openai/error.h"

namespace nereid::front {

struct SamplingOptions {
  double temperature = 1.0;  // 0: greedy
  double top_p = 1.0;
  int64_t top_k = 0;  // 0: off
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  // absent: until the context is full
  int64_t min_tokens = 0;
  std::vector<std::string> stop;  // at most kMaxStopStrings, none empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_text = false;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
};

inline constexpr size_t kMaxStopStrings = 4;
inline constexpr size_t kMaxPrompts = 128;

struct CommonOptions {
  std::string model;  // empty: whatever is served
  bool stream = false;
  bool include_usage = false;           // a last chunk with usage
  bool continuous_usage_stats = false;  // usage in every chunk
  SamplingOptions sampling;
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  CommonOptions common;
  std::vector<Prompt> prompts;  // one choice each; never empty, none empty
  bool echo = false;
  bool add_special_tokens = true;
};

struct ChatRequest {
  CommonOptions common;
  json::object context;      // what the template gets: messages, tools, ...
  bool parse_tools = false;  // look for tool calls in the output
};

// Result or error. (Not StatusOr: errors carry the field's name.)
template <class T>
using Parsed = std::variant<T, ApiError>;

// `body` is the request text. Unknown fields are ignored (logged at debug level); known fields that
// do not work yet are refused by name unless they have their neutral value.
Parsed<CompletionRequest> parse_completion_request(std::string_view body);
Parsed<ChatRequest> parse_chat_request(std::string_view body);

}  // namespace nereid::front
