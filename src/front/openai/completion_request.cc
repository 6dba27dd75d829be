// /v1/completions bodies; see requests.h.
#include "front/openai/request_fields.h"

namespace nereid::front {
Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   json::storage_ptr memory) {
  const auto root = parse_body(body, std::move(memory));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  CompletionRequest out;
  out.prompts = read_prompts(fields, "prompt", kMaxPrompts);
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
