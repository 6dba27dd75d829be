// Lines that a person types in a chat: messages and /commands.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::cli {

// "/save x y" -> {"save", "x y"}; a line that begins with "//" is a message that begins with "/".
struct ChatCommand {
  std::string name;      // without the slash; "" = a message
  std::string argument;  // the rest of the line, or the message
};

// InvalidArgument: an unknown command, with the nearest one, or a missing or unexpected argument.
StatusOr<ChatCommand> parse_chat_line(std::string_view line);

// The text that /help prints.
std::string chat_help();

// Collects the lines of one message: a line that ends in a backslash goes on in the next one, and
// lines between two lines of three quotes (""") are one message.
class MessageLines {
 public:
  // The whole message, or nullopt: more lines follow.
  std::optional<std::string> add(std::string_view line);
  bool is_open() const { return is_quoted_ || goes_on_; }
  void clear();
  // The lines so far, at the end of the input; nullopt: none.
  std::optional<std::string> rest();

 private:
  std::string text_;
  bool is_quoted_ = false, goes_on_ = false;
};

}  // namespace nereid::cli
