#include "text/chat_needs.h"

#include <string_view>
#include <utility>

#include "base/json_members.h"
#include "text/jinja/value.h"

namespace nereid::text {

namespace {

constexpr std::string_view kUserText = "probe-user", kSystemText = "probe-system";
constexpr std::string_view kArgument = "probe_argument";
constexpr std::string_view kArguments = R"({"probe_argument": "value"})";

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

json::object message(std::string_view role, std::string_view content) {
  return {{"role", view(role)}, {"content", view(content)}};
}

// Renders a conversation; empty when that fails.
class Probe {
 public:
  Probe(const std::function<StatusOr<std::string>(const json::object&)>& render,
        const ChatNeeds& needs)
      : render_(render), needs_(needs) {}

  std::string text(json::array messages) const {
    adapt_messages(needs_, messages);
    const json::object context = {
        {"messages", std::move(messages)}, {"tools", nullptr}, {"add_generation_prompt", true}};
    return render_(context).value_or("");
  }
  bool shows(json::array messages, std::string_view part) const {
    return text(std::move(messages)).find(part) != std::string::npos;
  }

 private:
  const std::function<StatusOr<std::string>(const json::object&)>& render_;
  const ChatNeeds& needs_;
};

// A conversation with a tool call of the assistant.
json::array call_with(json::value arguments) {
  json::object function = {{"name", "probe"}, {"arguments", std::move(arguments)}};
  json::object answer = message("assistant", "");
  answer["tool_calls"] =
      json::array{{{"id", "probe0000"}, {"type", "function"}, {"function", std::move(function)}}};
  return {message("user", kUserText), std::move(answer)};
}

bool needs_text_arguments(const Probe& probe) {
  json::object arguments;
  arguments[view(kArgument)] = "value";
  const std::string object = probe.text(call_with(std::move(arguments)));
  // Single quotes are Python's text of a dict, which is not JSON.
  const bool as_object = object.find(kArgument) != std::string::npos &&
                         object.find("'" + std::string(kArgument)) == std::string::npos;
  return !as_object && probe.shows(call_with(json::value(view(kArguments))), kArguments);
}

const json::string* content_of(const json::object& message) {
  return member_or_null(message, "content").if_string();
}

bool has_role(const json::object& message, std::string_view role) {
  return text_member(message, "role") == role;
}

// The message, if it has that role and a text; else null.
json::object* as_text_of(json::value& item, std::string_view role) {
  json::object* const object = item.if_object();
  return object && has_role(*object, role) && content_of(*object) ? object : nullptr;
}

void join(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

// Appends the text to the last message, if it is a user's.
bool append_to_user(json::array& messages, std::string& text) {
  json::object* const last = messages.empty() ? nullptr : as_text_of(messages.back(), "user");
  if (!last) return false;
  std::string all(*content_of(*last));
  join(all, std::exchange(text, {}));
  (*last)["content"] = view(all);
  return true;
}

// Joins system texts to the next message if it is a user's, else to the previous one if it is a
// user's; else they become a message. `keeps_first`: those at the conversation's front become
// one system message.
void fold_system(json::array& messages, bool keeps_first) {
  json::array out;
  std::string pending;
  for (json::value& item : messages) {
    if (json::object* system = as_text_of(item, "system")) {
      join(pending, std::string_view(*content_of(*system)));
      continue;
    }
    if (!pending.empty() && out.empty() && keeps_first)
      out.push_back(message("system", std::exchange(pending, {})));
    json::object* const user = as_text_of(item, "user");
    if (!pending.empty() && user) {
      join(pending, std::string_view(*content_of(*user)));
      (*user)["content"] = view(std::exchange(pending, {}));
    } else if (!pending.empty()) {
      append_to_user(out, pending);
    }
    out.push_back(std::move(item));
  }
  if (!pending.empty() && !append_to_user(out, pending)) {
    const bool is_all = out.empty() && keeps_first;
    out.push_back(message(is_all ? "system" : "user", pending));
  }
  messages = std::move(out);
}

void name_thoughts(json::object& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const json::value thoughts = member_or_null(message, name);
    if (thoughts.is_null()) continue;
    message["reasoning_content"] = thoughts;
    if (!message.contains("thinking")) message["thinking"] = thoughts;
    return;
  }
}

// Writes arguments as Python's json does, the form in training data.
void write_arguments(json::value& call) {
  json::object* object = call.if_object();
  json::value* function = object ? object->if_contains("function") : nullptr;
  json::object* inner = function ? function->if_object() : object;
  json::value* arguments = inner ? inner->if_contains("arguments") : nullptr;
  if (arguments == nullptr || !arguments->is_object()) return;
  try {
    jinja::Budget budget({});
    *arguments = view(jinja::dump_json(jinja::from_json(*arguments, budget), {}, budget));
  } catch (const jinja::Error&) {  // too deep or too large: the template's own error reports it
  }
}

}  // namespace

ChatNeeds probe_needs(const std::function<StatusOr<std::string>(const json::object&)>& render) {
  ChatNeeds needs;
  const Probe probe(render, needs);
  if (!probe.shows({message("user", kUserText)}, kUserText)) {
    needs.typed_content = true;
    needs.typed_content = probe.shows({message("user", kUserText)}, kUserText);
    if (!needs.typed_content) return needs;
  }
  needs.no_system =
      !probe.shows({message("system", kSystemText), message("user", kUserText)}, kSystemText);
  needs.no_late_system =
      !needs.no_system &&
      !probe.shows({message("user", kUserText), message("assistant", "probe-answer"),
                    message("user", kUserText), message("system", kSystemText)},
                   kSystemText);
  needs.text_arguments = needs_text_arguments(probe);
  return needs;
}

void adapt_messages(const ChatNeeds& needs, json::array& messages) {
  for (json::value& item : messages) {
    json::object* object = needs.has_developer ? nullptr : item.if_object();
    if (object && has_role(*object, "developer")) (*object)["role"] = "system";
  }
  if (needs.no_system || needs.no_late_system) fold_system(messages, !needs.no_system);
  for (json::value& item : messages) {
    json::object* object = item.if_object();
    if (object == nullptr) continue;
    name_thoughts(*object);
    if (const json::string* content = content_of(*object); content && needs.typed_content) {
      (*object)["content"] = json::array{{{"type", "text"}, {"text", *content}}};
    }
    json::value* calls = object->if_contains("tool_calls");
    if (!needs.text_arguments || calls == nullptr || !calls->is_array()) continue;
    for (json::value& call : calls->get_array()) write_arguments(call);
  }
}

}  // namespace nereid::text
