#include "cli/chat/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

using ::testing::HasSubstr;

TEST(ChatCommands, LinesAndCommands) {
  const auto parse = [](std::string_view line) {
    const auto command = parse_chat_line(line);
    return command.ok() ? command->name + "|" + command->argument
                        : "error: " + std::string(message(command.status()));
  };
  EXPECT_EQ(parse("Hello /quit"), "|Hello /quit");
  EXPECT_EQ(parse("//etc is a folder"), "|/etc is a folder");
  EXPECT_EQ(parse("/quit"), "quit|");
  EXPECT_EQ(parse("/bye"), "quit|");
  EXPECT_EQ(parse("/system  Be brief. "), "system|Be brief.");
  EXPECT_EQ(parse("/save my file.json"), "save|my file.json");
  EXPECT_THAT(parse("/save"), HasSubstr("usage: /save FILE"));
  EXPECT_THAT(parse("/clear all"), HasSubstr("takes nothing behind it"));
  EXPECT_THAT(parse("/cler"), HasSubstr("Did you mean '/clear'?"));
  EXPECT_THAT(parse("/"), HasSubstr("no command '/'"));
  for (const char* name : {"/help", "/clear", "/system", "/save", "/quit", "/retry"})
    EXPECT_THAT(chat_help(), HasSubstr(name));
}

TEST(ChatCommands, MessagesOfSeveralLines) {
  MessageLines lines;
  EXPECT_EQ(lines.add("one"), "one");
  EXPECT_EQ(lines.add("one\\"), std::nullopt);
  EXPECT_TRUE(lines.is_open());
  EXPECT_EQ(lines.add("two"), "one\ntwo");
  EXPECT_EQ(lines.add("\"\"\""), std::nullopt);
  EXPECT_EQ(lines.add("a\\"), std::nullopt);
  EXPECT_EQ(lines.add(""), std::nullopt);
  EXPECT_EQ(lines.add("b"), std::nullopt);
  EXPECT_EQ(lines.add("\"\"\""), "a\\\n\nb");
  EXPECT_EQ(lines.rest(), std::nullopt);
  lines.add("\"\"\"");
  lines.add("open");
  EXPECT_EQ(lines.rest(), "open");
  EXPECT_FALSE(lines.is_open());
}

}  // namespace
}  // namespace nereid::cli
