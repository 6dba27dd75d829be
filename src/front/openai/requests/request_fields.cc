// Shared request fields; see request_fields.h.
#include "front/openai/requests/request_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json_exact.h"
#include "front/http/json_text.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxBadWords = 256;
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
  size_t num_bytes = 0;
  for (const json::value& item : list) {
    if (!item.is_string() || item.get_string().empty()) {
      fields.fail("stop", "expected a non-empty string or an array of them", "invalid_type");
      return;
    }
    num_bytes += item.get_string().size();
    out.stop.emplace_back(std::string_view(item.get_string()));
  }
  if (num_bytes > kMaxStopBytes) {
    fields.fail("stop",
                fmt::format("{} bytes given, at most {} allowed", num_bytes, kMaxStopBytes));
  }
}

// {"token id": bias, ...}
void read_logit_bias(Fields& fields, SamplingOptions& out) {
  const json::object* object = fields.object("logit_bias");
  if (object == nullptr) return;
  for (const auto& member : *object) {
    const std::string_view key = member.key();
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      fields.fail("logit_bias", fmt::format("key \"{}\" is not a token id", key.substr(0, 40)),
                  "invalid_type");
      return;
    }
    const json::value& value = member.value();
    const double bias = value.is_number() ? value.to_number<double>() : NAN;
    if (!(bias >= -100 && bias <= 100)) {
      fields.fail("logit_bias",
                  fmt::format("the value of \"{}\" is {}, not a number in [-100, 100]", key,
                              json::serialize(value).substr(0, 40)),
                  kInvalidValue);
      return;
    }
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

void read_bad_words(Fields& fields, SamplingOptions& out) {
  const json::array* list = fields.array("bad_words");
  if (list == nullptr) return;
  if (list->size() > kMaxBadWords) {
    fields.fail("bad_words",
                fmt::format("{} words given, at most {} allowed", list->size(), kMaxBadWords));
  }
  for (const json::value& item : *list) {
    if (!item.is_string() || item.get_string().empty()) {
      fields.fail("bad_words", "expected an array of non-empty strings", "invalid_type");
      return;
    }
    out.bad_words.emplace_back(std::string_view(item.get_string()));
  }
}

void read_penalties(Fields& fields, SamplingOptions& out) {
  out.said.min_p = fields.number("min_p", 0, 1);
  out.min_p = out.said.min_p.value_or(0);
  out.top_p_min = fields.number("top_p_min", 0, 1).value_or(0);
  out.said.repetition_penalty = fields.number("repetition_penalty", 0, 2);
  out.repetition_penalty = out.said.repetition_penalty.value_or(1);
  if (out.repetition_penalty == 0) fields.fail("repetition_penalty", "0 is not in (0, 2]");
  out.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  out.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  out.prompt_ignore_length = fields.integer("prompt_ignore_length", 0, kMaxTokenId);
  read_logit_bias(fields, out);
  read_bad_words(fields, out);
}

void read_sampling(Fields& fields, int64_t least_max_tokens, SamplingOptions& out) {
  out.said.temperature = fields.number("temperature", 0, 100);
  out.temperature = out.said.temperature.value_or(1.0);
  if (out.temperature < kLeastTemperature) out.temperature = 0;
  out.said.top_p = fields.number("top_p", 0, 1);
  out.top_p = out.said.top_p.value_or(1.0);
  if (out.top_p == 0) fields.fail("top_p", "0 is not in (0, 1]");
  const auto top_k = fields.integer("top_k", -1, kMaxTokenId);
  if (top_k) out.said.top_k = static_cast<double>(*top_k);
  out.top_k = std::max<int64_t>(0, top_k.value_or(0));
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max())) {
    out.seed = static_cast<uint64_t>(*seed);
  }
  const auto max_tokens = fields.integer("max_tokens", least_max_tokens, kMaxTokenId);
  const auto max_completion_tokens =
      fields.integer("max_completion_tokens", least_max_tokens, kMaxTokenId);
  out.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  out.min_tokens = fields.integer("min_tokens", 0, kMaxTokenId).value_or(0);
  if (out.max_tokens && out.min_tokens > *out.max_tokens) {
    fields.fail("min_tokens",
                fmt::format("{} is more than max_tokens {}", out.min_tokens, *out.max_tokens));
  }
  read_stops(fields, out);
  out.stop_token_ids = read_token_ids(fields, "stop_token_ids", 64);
  out.allowed_token_ids = read_token_ids(fields, "allowed_token_ids", kMaxAllowedTokens);
  const json::array* const allowed = fields.array("allowed_token_ids");
  if (allowed && allowed->empty()) fields.fail("allowed_token_ids", "at least one id is needed");
  out.tokens_as_ids = fields.flag("return_tokens_as_token_ids").value_or(false);
  out.detokenize = fields.flag("detokenize").value_or(true);
  if (!out.detokenize && !out.stop.empty())
    fields.fail("detokenize", "false not with \"stop\", which is looked for in the text");
  out.include_stop_text = fields.flag("include_stop_str_in_output").value_or(false);
  out.ignore_eos = fields.flag("ignore_eos").value_or(false);
  out.skip_special_tokens = fields.flag("skip_special_tokens").value_or(true);
  read_penalties(fields, out);
  out.guide = read_guide(fields);
  fields.ignore("guided_decoding_backend");
  if (out.guide && out.ignore_eos)
    fields.fail("ignore_eos", "not with a text that has to be of a certain form: it could not end");
}

void refuse_unsupported(Fields& fields) {
  fields.refuse_unless("return_context_logits", false);
  fields.refuse_unless("spaces_between_special_tokens", true);
  for (const char* key : {"guided_whitespace_pattern", "lora_request", "disaggregated_params",
                          "conversation_params", "kv_transfer_params"}) {
    fields.refuse_unless(key, nullptr);
  }
}

}  // namespace

std::vector<int32_t> read_token_ids(Fields& fields, const char* key, size_t most) {
  std::vector<int32_t> out;
  const json::array* list = fields.array(key);
  if (list == nullptr) return out;
  if (list->size() > most)
    fields.fail(key, fmt::format("{} ids given, at most {} allowed", list->size(), most));
  for (const json::value& item : *list) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > kMaxTokenId) {
      fields.fail(key, "expected an array of token ids", "invalid_type");
      return {};
    }
    out.push_back(static_cast<int32_t>(item.get_int64()));
  }
  return out;
}

std::variant<json::object, ApiError> parse_body(std::string_view body, json::storage_ptr memory,
                                                std::span<const std::string_view> exact) {
  StatusOr<json::value> root = exact.empty() ? parse_json(body, kMaxDepth, memory, memory)
                                             : parse_json_exact(body, kMaxDepth, memory, memory);
  if (root.status().code() == absl::StatusCode::kUnavailable) return api_error(root.status());
  if (!root.ok()) {
    return ApiError{400,
                    fmt::format("the request body is not valid JSON: {}", message(root.status())),
                    "", "invalid_json"};
  }
  // A body that is a long number is no object any more.
  if (!exact.empty()) round_long_numbers(*root, exact);
  if (!root->is_object()) {
    return ApiError{
        400, fmt::format("the request body must be a JSON object, got {}", json_kind_name(*root)),
        "", "invalid_type"};
  }
  if (const auto key = duplicate_key(body)) {
    return ApiError{400, fmt::format("the request body has the member '{}' twice", *key), *key,
                    "duplicate_member"};
  }
  return std::move(root->get_object());
}

bool is_request_id(std::string_view text) {
  const auto is_plain = [](char c) { return c > 0x20 && c < 0x7f; };
  return text.size() <= 128 && std::ranges::all_of(text, is_plain);
}

CommonOptions read_request(Fields& fields) {
  CommonOptions out;
  out.model = fields.text("model").value_or("");
  out.request_id = fields.text("request_id").value_or("");
  if (!is_request_id(out.request_id))
    fields.fail("request_id", "at most 128 characters of ASCII without blanks are allowed");
  SamplingOptions& s = out.sampling;
  s.max_prompt_tokens = fields.integer("truncate_prompt_tokens", kFitContext, kMaxTokenId);
  if (s.max_prompt_tokens == 0)
    fields.fail("truncate_prompt_tokens",
                "0 is not allowed; 1 or more, or -1: what the model has room for");
  s.priority = fields.number("priority", 0, 1);
  s.cache_salt = fields.text("cache_salt").value_or("");
  if (s.cache_salt.size() > 256) {
    fields.fail("cache_salt",
                fmt::format("{} bytes given, at most 256 allowed", s.cache_salt.size()));
  }
  // No effect: nothing is stored, and there is one service tier.
  for (const char* key :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}) {
    fields.ignore(key);
  }
  return out;
}

CommonOptions read_common(Fields& fields, int64_t least_max_tokens) {
  CommonOptions out = read_request(fields);
  out.stream = fields.flag("stream").value_or(false);
  if (const json::object* options = fields.object("stream_options")) {
    if (!out.stream) fields.fail("stream_options", "only allowed with \"stream\": true");
    Fields inner(*options);
    out.include_usage = inner.flag("include_usage").value_or(false);
    out.continuous_usage_stats = inner.flag("continuous_usage_stats").value_or(false);
    if (inner.error()) fields.fail("stream_options", inner.error()->message);
  }
  out.return_token_ids = fields.flag("return_token_ids").value_or(false);
  read_sampling(fields, least_max_tokens, out.sampling);
  out.prompt_log_probs = fields.integer("prompt_logprobs", 0, kMaxTopLogProbs);
  if (out.prompt_log_probs && out.stream)
    fields.fail("prompt_logprobs", "not with \"stream\"; \"echo\" with \"logprobs\" is");
  out.sampling.num_prompt_log_probs = out.prompt_log_probs;
  out.return_token_ids |= !out.sampling.detokenize;
  refuse_unsupported(fields);
  return out;
}

void read_sequences(Fields& fields, CommonOptions& options, size_t num_prompts) {
  SamplingOptions& s = options.sampling;
  s.n = fields.integer("n", 1, kMaxSequences).value_or(1);
  s.best_of = fields.integer("best_of", 1, kMaxSequences).value_or(s.n);
  if (s.best_of < s.n) {
    fields.fail("best_of", fmt::format("{} is less than n, which is {}", s.best_of, s.n));
  }
  const auto total = static_cast<int64_t>(num_prompts) * s.best_of;
  if (total > kMaxSequences) {
    fields.fail(s.best_of > s.n ? "best_of" : "n",
                fmt::format("{} prompts with {} sequences each are more than {}", num_prompts,
                            s.best_of, kMaxSequences));
  }
  s.use_beam_search = fields.flag("use_beam_search").value_or(false);
  if (s.use_beam_search && s.guide)
    fields.fail("use_beam_search", "not with a text that has to be of a certain form");
  s.length_penalty = fields.number("length_penalty", 0, 1e6).value_or(1);
  const json::value* early = fields.get("early_stopping");
  if (early != nullptr && early->is_bool()) {
    s.early_stopping = early->get_bool() ? 1 : 0;
  } else if (early != nullptr && early->is_string() && early->get_string() == "never") {
    s.early_stopping = 2;
  } else if (early != nullptr && !early->is_null()) {
    fields.fail("early_stopping", "expected true, false or \"never\"", "invalid_type");
  }
  if (options.stream && s.use_beam_search) {
    fields.fail("use_beam_search", "beams change until the end, so they cannot be streamed");
  } else if (options.stream && s.best_of > s.n) {
    fields.fail("best_of",
                "the best sequences are known only at the end; with \"stream\" best_of "
                "must equal n");
  }
}

}  // namespace nereid::front
