// /v1/completions bodies; see requests.h.
#include <algorithm>
#include <limits>

#include "front/openai/requests/request_fields.h"

namespace nereid::front {
namespace {

// All prompts of a request; those of prompt_embeds come first.
std::vector<Prompt> all_prompts(Fields& fields) {
  std::vector<Prompt> out = read_prompt_embeds(fields, kMaxPrompts);
  const json::value* const prompt = fields.get("prompt");
  const bool says_nothing =
      !prompt || prompt->is_null() || (prompt->is_string() && prompt->get_string().empty());
  if (!out.empty() && says_nothing) return out;
  for (Prompt& other : read_prompts(fields, "prompt", kMaxPrompts - out.size()))
    out.push_back(std::move(other));
  return out;
}

bool is_rows(const Prompt& prompt) { return std::holds_alternative<PromptRowsPtr>(prompt); }

// Refuses fields that need the tokens of a prompt.
void refuse_with_rows(Fields& fields, const CompletionRequest& request) {
  if (std::ranges::none_of(request.prompts, is_rows)) return;
  constexpr char kNot[] = "not with \"prompt_embeds\", which have no tokens";
  if (request.echo) fields.fail("echo", kNot);
  if (request.common.prompt_log_probs) fields.fail("prompt_logprobs", kNot);
  if (request.common.sampling.max_prompt_tokens) fields.fail("truncate_prompt_tokens", kNot);
}

// "images": URLs of the pictures that the prompt's marks stand for.
void read_images(Fields& fields, CompletionRequest& out) {
  const json::array* const list = fields.array("images");
  if (!list || list->empty()) return;
  if (list->size() > kMaxPictures)
    fields.fail("images", fmt::format("a request has at most {} pictures", kMaxPictures));
  if (out.prompts.size() != 1 || !std::holds_alternative<std::string>(out.prompts[0]))
    fields.fail("images", "only with one prompt, a text");
  if (!out.suffix.empty()) fields.fail("images", "not with \"suffix\"");
  if (out.common.sampling.max_prompt_tokens)
    fields.fail("images", "not with \"truncate_prompt_tokens\"");
  for (const json::value& url : *list) {
    const json::string* const text = url.if_string();
    if (!text) return fields.fail("images", "expected URLs", "invalid_type");
    out.pictures.push_back(
        {fmt::format("images[{}]", out.pictures.size()), json::string(*text, text->storage())});
  }
}

TranslationOptions translation_of(Fields& fields) {
  TranslationOptions out;
  out.source = fields.text("src_lang").value_or("");
  out.target = fields.text("tgt_lang").value_or("");
  out.forced_bos = fields.integer("forced_bos_token_id", 0, std::numeric_limits<int32_t>::max());
  if (out.forced_bos && !out.target.empty())
    fields.fail("forced_bos_token_id", "not with \"tgt_lang\", which names the same token");
  return out;
}

CompletionRequest completion_of(Fields& fields) {
  CompletionRequest out;
  out.prompts = all_prompts(fields);
  out.common = read_common(fields, /*least_max_tokens=*/0);
  SamplingOptions& sampling = out.common.sampling;
  out.echo = fields.flag("echo").value_or(false);
  if (sampling.max_tokens == 0) {
    if (!out.echo) fields.fail("max_tokens", "0 is only allowed with \"echo\": true");
    out.prompt_only = true;
    sampling.max_tokens = 1;
  }
  if (out.echo && !sampling.detokenize)
    fields.fail("echo", "not with \"detokenize\": false, which returns no text");
  out.add_special_tokens = fields.flag("add_special_tokens").value_or(true);
  out.suffix = fields.text("suffix").value_or("");
  if (!out.suffix.empty() && sampling.max_prompt_tokens)
    fields.fail("suffix", "not with \"truncate_prompt_tokens\"");
  for (const Prompt& prompt : out.prompts)
    if (!out.suffix.empty() && !std::holds_alternative<std::string>(prompt))
      fields.fail("suffix", "only with prompts that are texts");
  read_sequences(fields, out.common, out.prompts.size());
  if (const auto count = fields.integer("logprobs", 0, kMaxTopLogProbs)) {
    sampling.log_probs = true;
    sampling.num_top_log_probs = *count;
    if (out.echo && !out.suffix.empty())
      fields.fail("logprobs", "not with \"echo\" and \"suffix\", which is not part of the text");
    if (out.echo)
      sampling.num_prompt_log_probs = std::max(*count, sampling.num_prompt_log_probs.value_or(0));
  }
  out.translation = translation_of(fields);
  refuse_with_rows(fields, out);
  read_images(fields, out);
  fields.refuse_unless("thinking_token_budget", nullptr);
  return out;
}

}  // namespace

Parsed<CompletionRequest> parse_completion_request(std::string_view body,
                                                   json::storage_ptr memory) {
  return parse_fields(body, std::move(memory), completion_of);
}

FieldUses completion_fields() { return uses_of(completion_of); }

}  // namespace nereid::front
