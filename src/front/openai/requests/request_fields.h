// Parsers of fields shared by both requests. Internal to front/openai.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "front/openai/requests/fields.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {

// The request object, or a 400 with line and column; 503 when `memory` is full. Numbers in the
// member `exact` keep all digits (see long_number()).
std::variant<json::object, ApiError> parse_body(std::string_view body, json::storage_ptr memory,
                                                std::span<const std::string_view> exact = {});

// A whole request: `read` reads its fields; `exact`: see parse_body().
template <class Request>
Parsed<Request> parse_fields(std::string_view body, json::storage_ptr memory,
                             Request (*read)(Fields&),
                             std::span<const std::string_view> exact = {}) {
  const auto root = parse_body(body, std::move(memory), exact);
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  Request out = read(fields);
  if (fields.error()) return *fields.error();
  out.common.unknown = fields.unknown();
  return out;
}

// The fields that `read` uses, where the request is `object`.
template <class Request>
FieldUses uses_of(Request (*read)(Fields&), const json::object& object = {}) {
  Fields fields(object);
  read(fields);
  return fields.uses();
}

// The members of a chat's body that have arguments of earlier calls, and schemas of arguments.
inline constexpr std::string_view kExactOfChats[] = {"messages", "tools"};

// Fields of every request: model, request_id, priority, cache_salt, truncate_prompt_tokens; and
// fields without effect.
CommonOptions read_request(Fields& fields);

// A string, a list of strings, a tokenised prompt or a list of them. At least one, none empty.
std::vector<Prompt> read_prompts(Fields& fields, std::string_view key, size_t max_prompts);

// prompt_embeds: empty when absent or at fault.
std::vector<Prompt> read_prompt_embeds(Fields& fields, size_t max_prompts);

// read_request, stream, sampling, stops, and the refusals common to completions and chat.
// max_tokens is at least `least_max_tokens`.
CommonOptions read_common(Fields& fields, int64_t least_max_tokens = 1);

// An array of token ids; empty when absent or at fault.
std::vector<int32_t> read_token_ids(Fields& fields, const char* key, size_t most);

// The grammar of the output, from any of its fields; at most one may be set.
std::optional<GrammarField> read_guide(Fields& fields);

// n, best_of and beams of `num_prompts` prompts. To be called after the other sampling fields.
void read_sequences(Fields& fields, CommonOptions& options, size_t num_prompts);

}  // namespace nereid::front
