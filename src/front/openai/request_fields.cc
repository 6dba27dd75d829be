// Shared request fields; see request_fields.h.
#include "front/openai/request_fields.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxDepth = 100;
constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

void read_stops(Fields& fields, SamplingOptions& out) {
  const json::value* stop = fields.get("stop");
  if (stop == nullptr || stop->is_null()) return;
  const json::array one = {*stop};
  const json::array& list = stop->is_array() ? stop->get_array() : one;
  if (list.size() > kMaxStopStrings) {
    fields.fail("stop",
                fmt::format("{} strings given, at most {} allowed", list.size(), kMaxStopStrings));
  }
  for (const json::value& item : list) {
    if (!item.is_string() || item.get_string().empty()) {
      fields.fail("stop", "expected a non-empty string or an array of them", "invalid_type");
      return;
    }
    out.stop.emplace_back(std::string_view(item.get_string()));
  }
}

void read_stop_token_ids(Fields& fields, SamplingOptions& out) {
  const json::array* list = fields.array("stop_token_ids");
  if (list == nullptr) return;
  if (list->size() > 64) fields.fail("stop_token_ids", "at most 64 ids allowed");
  for (const json::value& item : *list) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > kMaxTokenId) {
      fields.fail("stop_token_ids", "expected an array of token ids", "invalid_type");
      return;
    }
    out.stop_token_ids.push_back(static_cast<int32_t>(item.get_int64()));
  }
}

SamplingOptions read_sampling(Fields& fields) {
  SamplingOptions out;
  out.temperature = fields.number("temperature", 0, 2).value_or(1.0);
  if (out.temperature < 1e-5) out.temperature = 0;
  out.top_p = fields.number("top_p", 0, 1).value_or(1.0);
  if (out.top_p == 0) fields.fail("top_p", "0 is not in (0, 1]");
  out.top_k = std::max<int64_t>(0, fields.integer("top_k", -1, kMaxTokenId).value_or(0));
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max())) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  const auto max_tokens = fields.integer("max_tokens", 1, kMaxTokenId);
  const auto max_completion_tokens = fields.integer("max_completion_tokens", 1, kMaxTokenId);
  out.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  out.min_tokens = fields.integer("min_tokens", 0, kMaxTokenId).value_or(0);
  if (out.max_tokens && out.min_tokens > *out.max_tokens) {
    fields.fail("min_tokens",
                fmt::format("{} is more than max_tokens {}", out.min_tokens, *out.max_tokens));
  }
  read_stops(fields, out);
  read_stop_token_ids(fields, out);
  out.include_stop_text = fields.flag("include_stop_str_in_output").value_or(false);
  out.ignore_eos = fields.flag("ignore_eos").value_or(false);
  out.skip_special_tokens = fields.flag("skip_special_tokens").value_or(true);
  return out;
}

void refuse_unsupported(Fields& fields) {
  for (const char* key : {"n", "best_of", "repetition_penalty", "length_penalty"}) {
    fields.refuse_unless(key, 1);
  }
  for (const char* key : {"presence_penalty", "frequency_penalty", "min_p", "top_p_min",
                          "prompt_ignore_length", "priority"}) {
    fields.refuse_unless(key, 0);
  }
  for (const char* key : {"use_beam_search", "return_context_logits", "return_token_ids",
                          "return_tokens_as_token_ids"}) {
    fields.refuse_unless(key, false);
  }
  for (const char* key : {"detokenize", "spaces_between_special_tokens"}) {
    fields.refuse_unless(key, true);
  }
  fields.refuse_unless("logit_bias", json::object());
  fields.refuse_unless("response_format", json::object{{"type", "text"}});
  fields.refuse_unless("bad_words", json::array());
  for (const char* key :
       {"allowed_token_ids", "prompt_logprobs", "truncate_prompt_tokens", "early_stopping",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structural_tag",
        "structured_outputs", "grammar", "json_schema", "lora_request", "disaggregated_params",
        "conversation_params", "cache_salt", "kv_transfer_params", "thinking_token_budget"}) {
    fields.refuse_unless(key, nullptr);
  }
  for (const char* key : {"user", "metadata", "store", "service_tier", "request_id",
                          "safety_identifier", "prompt_cache_key"}) {
    fields.ignore(key);
  }
}

}  // namespace

std::variant<json::object, ApiError> parse_body(std::string_view body) {
  StatusOr<json::value> root = parse_json(body, kMaxDepth);
  if (!root.ok()) {
    return ApiError{400,
                    fmt::format("the request body is not valid JSON: {}", message(root.status())),
                    "", "invalid_json"};
  }
  if (!root->is_object()) {
    return ApiError{
        400, fmt::format("the request body must be a JSON object, got {}", json_kind_name(*root)),
        "", "invalid_type"};
  }
  return std::move(root->get_object());
}

CommonOptions read_common(Fields& fields) {
  CommonOptions out;
  out.model = fields.text("model").value_or("");
  out.stream = fields.flag("stream").value_or(false);
  if (const json::object* options = fields.object("stream_options")) {
    if (!out.stream) fields.fail("stream_options", "only allowed with \"stream\": true");
    Fields inner(*options);
    out.include_usage = inner.flag("include_usage").value_or(false);
    out.continuous_usage_stats = inner.flag("continuous_usage_stats").value_or(false);
    if (inner.error()) fields.fail("stream_options", inner.error()->message);
  }
  out.sampling = read_sampling(fields);
  refuse_unsupported(fields);
  return out;
}

void note_unknown(const Fields& fields, std::string_view route) {
  for (const std::string& key : fields.unknown()) log_debug("{}: unknown field '{}'", route, key);
}

}  // namespace nereid::front
