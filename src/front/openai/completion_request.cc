// /v1/completions bodies; see requests.h.
#include <limits>

#include "front/openai/request_fields.h"

namespace nereid::front {
namespace {

// One tokenised prompt; a fault when an element is no token id.
std::vector<int32_t> read_ids(Fields& fields, const json::array& list) {
  std::vector<int32_t> out;
  out.reserve(list.size());
  for (const json::value& item : list) {
    if (!item.is_int64() || item.get_int64() < 0 ||
        item.get_int64() > std::numeric_limits<int32_t>::max()) {
      fields.fail("prompt", "expected a string, token ids, or an array of either", "invalid_type");
      return {};
    }
    out.push_back(static_cast<int32_t>(item.get_int64()));
  }
  return out;
}

std::vector<Prompt> read_prompts(Fields& fields) {
  std::vector<Prompt> out;
  const json::value* prompt = fields.get("prompt");
  if (prompt == nullptr || prompt->is_null()) {
    fields.fail("prompt", "required", "missing_required_parameter");
    return out;
  }
  if (prompt->is_string()) {
    out.emplace_back(std::string(std::string_view(prompt->get_string())));
  } else if (prompt->is_array() && !prompt->get_array().empty()) {
    const json::array& list = prompt->get_array();
    if (list[0].is_number()) {
      out.emplace_back(read_ids(fields, list));
    } else if (list.size() > kMaxPrompts) {
      fields.fail("prompt",
                  fmt::format("{} prompts given, at most {} allowed", list.size(), kMaxPrompts));
    } else {
      for (const json::value& item : list) {
        if (item.is_string()) {
          out.emplace_back(std::string(std::string_view(item.get_string())));
        } else if (item.is_array()) {
          out.emplace_back(read_ids(fields, item.get_array()));
        } else {
          fields.fail("prompt", "expected a string, token ids, or an array of either",
                      "invalid_type");
        }
      }
    }
  } else {
    fields.fail("prompt", "expected a non-empty string, token ids, or an array of either",
                "invalid_type");
  }
  for (const Prompt& p : out) {
    if (std::visit([](const auto& v) { return v.empty(); }, p)) {
      fields.fail("prompt", "must not be empty");
    }
  }
  return out;
}

}  // namespace

Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   json::storage_ptr memory) {
  const auto root = parse_body(body, std::move(memory));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  CompletionRequest out;
  out.prompts = read_prompts(fields);
  out.common = read_common(fields);
  out.echo = fields.flag("echo").value_or(false);
  out.add_special_tokens = fields.flag("add_special_tokens").value_or(true);
  read_sequences(fields, out.common, out.prompts.size());
  if (const auto count = fields.integer("logprobs", 0, kMaxTopLogProbs)) {
    out.common.sampling.log_probs = true;
    out.common.sampling.num_top_log_probs = *count;
    if (out.echo) {
      fields.fail("logprobs",
                  "not with \"echo\": log-probabilities of the prompt are not supported",
                  "unsupported_parameter");
    }
  }
  fields.refuse_unless("suffix", "");
  fields.refuse_unless("prompt_embeds", nullptr);
  if (fields.error()) return *fields.error();
  out.common.unknown = fields.unknown();
  return out;
}

}  // namespace nereid::front
