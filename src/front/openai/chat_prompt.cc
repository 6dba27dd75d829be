// Renders conversations; see chat_prompt.h.
#include "front/openai/chat_prompt.h"

#include <string_view>

#include "base/blanks.h"

namespace nereid::front {
namespace {

// The content of the last message, without the blanks that templates cut off.
std::string_view last_content(const json::object& context) {
  const json::value* const messages = context.if_contains("messages");
  if (!messages || !messages->is_array() || messages->get_array().empty()) return {};
  const json::object* const last = messages->get_array().back().if_object();
  const json::value* const content = last ? last->if_contains("content") : nullptr;
  if (!content || !content->is_string()) return {};
  return without_blanks(std::string_view(content->get_string()));
}

// With the model's special tokens as variables.
StatusOr<std::string> render_with(const LanguageModel& model, const std::string& source,
                                  json::object context) {
  ASSIGN_OR_RETURN(const auto own, text::ChatTemplate::parse(source));
  if (model.chat_template)
    for (const auto& [name, text] : model.chat_template->special_tokens())
      context.emplace(name, text);
  return own.render_chat(std::move(context));
}

}  // namespace

std::variant<std::string, ApiError> chat_prompt(const LanguageModel& model,
                                                const json::object& context, bool continues_last,
                                                const std::optional<std::string>& own_template) {
  if (own_template && !model.takes_templates)
    return ApiError{400,
                    "'chat_template': this server takes no templates of requests (it was started "
                    "without --trust-request-chat-template)",
                    "chat_template", "unsupported_parameter"};
  if (!model.chat_template && !own_template)
    return ApiError{400, "the model has no chat template; use /v1/completions", "messages"};
  auto text = own_template ? render_with(model, *own_template, context)
                           : model.chat_template->render_chat(context);
  if (!text.ok())
    return ApiError{400, fmt::format("chat template: {}", message(text.status())), "messages"};
  if (!continues_last) return *std::move(text);
  const std::string_view content = last_content(context);
  const size_t at = content.empty() ? std::string::npos : text->rfind(content);
  if (at == std::string::npos)
    return ApiError{400,
                    "'continue_final_message': the chat template does not show the last message's "
                    "text as it is",
                    "continue_final_message"};
  text->resize(at + content.size());
  return *std::move(text);
}

}  // namespace nereid::front
