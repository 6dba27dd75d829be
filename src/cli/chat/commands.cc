// See commands.h.
#include "cli/chat/commands.h"

#include <algorithm>
#include <array>

#include "base/blanks.h"
#include "base/nearest.h"

namespace nereid::cli {
namespace {

enum class Needs : uint8_t { kNothing, kMaybe, kText };

struct KnownCommand {
  std::string_view name;
  Needs needs;
  std::string_view usage, help;
};

constexpr std::array kCommands = {
    KnownCommand{"help", Needs::kNothing, "/help", "this list"},
    KnownCommand{"clear", Needs::kNothing, "/clear",
                 "forget the conversation; system prompt and settings stay"},
    KnownCommand{"system", Needs::kMaybe, "/system [TEXT]",
                 "set the system prompt; without a text show it, - removes it"},
    KnownCommand{"retry", Needs::kNothing, "/retry",
                 "drop the last answer and ask for another one"},
    KnownCommand{"set", Needs::kMaybe, "/set [FIELD VALUE]",
                 "a field of requests: /set temperature 0.7, /set max_tokens 200, /set seed 1; "
                 "null removes it"},
    KnownCommand{"model", Needs::kMaybe, "/model [NAME]",
                 "use another model of the server; without a name list them"},
    KnownCommand{"save", Needs::kText, "/save FILE", "write the conversation as JSON"},
    KnownCommand{"load", Needs::kText, "/load FILE", "go on with a conversation that was saved"},
    KnownCommand{"quit", Needs::kNothing, "/quit", "leave; so do /exit, /bye and Ctrl-D"},
    KnownCommand{"exit", Needs::kNothing, "", ""},
    KnownCommand{"bye", Needs::kNothing, "", ""}};

}  // namespace

StatusOr<ChatCommand> parse_chat_line(std::string_view line) {
  if (!line.starts_with('/') || line.starts_with("//"))
    return ChatCommand{"", std::string(line.substr(line.starts_with("//") ? 1 : 0))};
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  const std::string name(line.substr(1, end - 1));
  const std::string argument(without_blanks(line.substr(end)));
  const auto* const known = std::ranges::find(kCommands, name, &KnownCommand::name);
  if (known == kCommands.end()) {
    std::set<std::string> names;
    for (const KnownCommand& command : kCommands) names.insert(std::string(command.name));
    const std::string near = nearest_name(name, names);
    return invalid_argument(
        "no command '/{}'.{} /help lists them; // begins a message with a slash", name,
        near.empty() ? "" : fmt::format(" Did you mean '/{}'?", near));
  }
  if (known->needs == Needs::kNothing && !argument.empty())
    return invalid_argument("/{}: takes nothing behind it", name);
  if (known->needs == Needs::kText && argument.empty())
    return invalid_argument("usage: {}", known->usage);
  if (name == "exit" || name == "bye") return ChatCommand{"quit", ""};
  return ChatCommand{name, argument};
}

std::string chat_help() {
  std::string out;
  for (const KnownCommand& command : kCommands)
    if (!command.usage.empty()) out += fmt::format("  {:20}  {}\n", command.usage, command.help);
  return out +
         "  Ctrl-C                stops an answer; \\ at the end of a line, or lines of \"\"\" "
         "around several, go on\n";
}

std::optional<std::string> MessageLines::add(std::string_view line) {
  if (line == "\"\"\"") {
    if (!std::exchange(is_quoted_, !is_quoted_)) return std::nullopt;
    if (text_.ends_with('\n')) text_.pop_back();
    return std::exchange(text_, {});
  }
  if (is_quoted_) {
    text_.append(line) += '\n';
    return std::nullopt;
  }
  goes_on_ = line.ends_with('\\');
  text_ += line.substr(0, line.size() - (goes_on_ ? 1 : 0));
  if (!goes_on_) return std::exchange(text_, {});
  text_ += '\n';
  return std::nullopt;
}

void MessageLines::clear() { *this = {}; }

std::optional<std::string> MessageLines::rest() {
  if (!is_open()) return std::nullopt;
  std::string text = std::exchange(text_, {});
  clear();
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace nereid::cli
