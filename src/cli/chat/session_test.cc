#include "cli/chat/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

TEST(ChatSession, TextForTerminalsHasNoCommands) {
  EXPECT_EQ(shown("plain\ttext\n\u00e9\u4e2d"), "plain\ttext\n\u00e9\u4e2d");
  EXPECT_EQ(shown("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(shown("\u009b2J\u0085"), "\\x9b2J\\x85");
  EXPECT_EQ(shown("\r\x7f"), "\\x0d\\x7f");
  EXPECT_EQ(shown("\xc2"), "\xc2");
}

TEST(ChatSession, NoServerAndNoUrl) {
  EXPECT_FALSE(ChatSession::open({"http://127.0.0.1:1", "", ""}).ok());
  EXPECT_FALSE(ChatSession::open({"ftp://a", "", ""}).ok());
}

}  // namespace
}  // namespace nereid::cli
