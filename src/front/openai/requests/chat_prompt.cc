// Rendering of conversations; see chat_prompt.h.
#include "front/openai/requests/chat_prompt.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/blanks.h"
#include "base/find_text.h"
#include "base/json_members.h"
#include "base/random_hex.h"
#include "front/openai/pictures/picture_prompt.h"

namespace nereid::front {
namespace {

constexpr size_t kMostLoopBytes = 64 << 10;  // of a text that is tokenised on the event loop
constexpr size_t kMostRoles = 16;

// The last message's content; null when it is no string.
json::string* last_content(json::object& context) {
  json::value* const messages = context.if_contains("messages");
  if (!messages || !messages->is_array() || messages->get_array().empty()) return nullptr;
  json::object* const last = messages->get_array().back().if_object();
  json::value* const content = last ? last->if_contains("content") : nullptr;
  return content ? content->if_string() : nullptr;
}

// Whether a prompt ends with an unfinished message. Templates cut off blanks in front of it, and
// some write the reasoning that a text has in it anew.
bool shows_to_end(std::string_view prompt, std::string_view content) {
  constexpr std::string_view kReasoningEnd = "</think>";
  if (const size_t at = content.rfind(kReasoningEnd); at != content.npos)
    content.remove_prefix(at + kReasoningEnd.size());
  content.remove_prefix(std::min(content.find_first_not_of(kBlanks), content.size()));
  return prompt.ends_with(content);
}

using Render = std::function<std::variant<std::string, ApiError>(json::object context)>;

// The prompt up to the end of the last message's content, found by a marker behind it.
std::variant<std::string, ApiError> unfinished_prompt(const json::object& context,
                                                      const Render& render) {
  json::object marked = context;
  const std::string mark = "end" + random_hex();
  json::string* const content = last_content(marked);
  const std::string unfinished(content ? std::string_view(*content) : "");
  if (content) content->append(mark);
  auto rendered = render(std::move(marked));
  auto* const text = std::get_if<std::string>(&rendered);
  if (!text) return rendered;
  const size_t end = rfind_text(*text, mark);
  if (end != std::string::npos) {
    text->resize(end);
    if (shows_to_end(*text, unfinished)) return rendered;
  }
  return ApiError{400,
                  "'continue_final_message': the chat template does not show the last message's "
                  "text as it is",
                  "continue_final_message"};
}

// Refuses messages of a rare role if the template does not render it.
std::optional<ApiError> check_roles(const json::object& context, const Render& render) {
  constexpr std::string_view kUsual[] = {"system", "developer", "user", "assistant", "tool"};
  constexpr std::string_view kText = "probe-text";
  std::set<std::string_view> seen(std::begin(kUsual), std::end(kUsual));
  for (const json::value& item : array_member(context, "messages")) {
    const json::string* const role = member_or_null(item, "role").if_string();
    if (!role || !seen.insert(std::string_view(*role)).second) continue;
    if (seen.size() > kMostRoles)
      return ApiError{400, "'messages': too many different roles", "messages"};
    const json::object probe = {{"role", *role}, {"content", json::string_view(kText)}};
    json::object conversation = context;
    conversation["messages"] = json::array{{{"role", "user"}, {"content", "-"}}, probe};
    const auto rendered = render(std::move(conversation));
    const auto* const text = std::get_if<std::string>(&rendered);
    if (!text || text->find(kText) == std::string::npos)
      return ApiError{400,
                      fmt::format("the chat template has no role '{}'", std::string_view(*role)),
                      "messages"};
  }
  return std::nullopt;
}

// Renders with the model's special tokens as variables.
StatusOr<std::string> render_with(const LanguageModel& model, const std::string& source,
                                  json::object context, const text::jinja::Limits& limits) {
  ASSIGN_OR_RETURN(const auto own, text::ChatTemplate::parse(source));
  if (model.chat_template)
    for (const auto& [name, text] : model.chat_template->special_tokens())
      context.emplace(name, text);
  return own.render_chat(std::move(context), limits);
}

// Limits of a rendering in its lane: steps of up to 0.1 us each, mostly.
text::jinja::Limits limits_of(const PromptWork& work) {
  text::jinja::Limits limits;
  if (work.lane == Lane::kLoop) limits.max_steps = 20'000;
  if (work.lane == Lane::kWorker) limits.max_steps = 1'000'000;
  limits.is_unwanted = work.is_unwanted;
  return limits;
}

// A prompt that shows the context's pictures. Templates that write no marks get these in texts.
std::variant<std::string, ApiError> prompt_with_pictures(
    const json::object& context, const vision::PictureMarks& marks,
    const std::function<std::variant<std::string, ApiError>(const json::object&)>& prompt_of) {
  if (auto error = check_no_marks(context, marks)) return *std::move(error);
  auto prompt = prompt_of(context);
  const auto* text = std::get_if<std::string>(&prompt);
  const bool has_pictures = !pictures_in(context).empty();
  if (has_pictures && (!text || find_text(*text, marks.marker) == std::string::npos))
    prompt = prompt_of(with_marks_in_texts(context, marks));
  text = std::get_if<std::string>(&prompt);
  if (!has_pictures || !text) return prompt;
  return vision::with_shown_marks(*text, marks);
}

}  // namespace

std::variant<std::string, ApiError> chat_prompt(const LanguageModel& model,
                                                const json::object& context, bool continues_last,
                                                const std::optional<std::string>& own_template,
                                                const PromptWork& work) {
  if (own_template && !model.takes_templates)
    return ApiError{400,
                    "'chat_template': this server does not accept templates in requests (it was "
                    "started without --trust-request-chat-template)",
                    "chat_template", "unsupported_parameter"};
  if (!model.chat_template && !own_template)
    return ApiError{
        400,
        "the model has no chat template: start the server with --chat-template FILE, or use "
        "/v1/completions",
        "messages"};
  if (own_template && work.lane == Lane::kLoop) throw TakesLonger();  // it is parsed and probed
  const auto limits = limits_of(work);
  const auto render = [&](json::object all) -> std::variant<std::string, ApiError> {
    auto text = own_template ? render_with(model, *own_template, std::move(all), limits)
                             : model.chat_template->render_chat(std::move(all), limits);
    if (absl::IsResourceExhausted(text.status()) && work.lane < Lane::kLong) throw TakesLonger();
    if (text.ok() && work.lane == Lane::kLoop && text->size() > kMostLoopBytes) throw TakesLonger();
    if (text.ok()) return *std::move(text);
    return ApiError{400, fmt::format("chat template: {}", message(text.status())), "messages"};
  };
  if (auto error = check_roles(context, render)) return *std::move(error);
  const auto prompt_of = [&](const json::object& all) {
    return continues_last ? unfinished_prompt(all, render) : render(all);
  };
  if (!model.pictures.ok()) return prompt_of(context);
  return prompt_with_pictures(context, (*model.pictures)->marks, prompt_of);
}

std::vector<size_t> later_starts(const json::array& messages) {
  std::vector<size_t> out;
  bool has_first = false;
  for (size_t i = 0; i < messages.size(); ++i)
    if (text_member(messages[i], "role") == "user" && std::exchange(has_first, true))
      out.push_back(i);
  return out;
}

json::array messages_from(const json::array& messages, size_t start) {
  json::array out(messages.storage());
  for (size_t i = 0; i < messages.size(); ++i)
    if (i >= start || text_member(messages[i], "role") == "system") out.push_back(messages[i]);
  return out;
}

}  // namespace nereid::front
