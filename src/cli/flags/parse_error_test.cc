#include <algorithm>
#include <vector>

#include "cli/flags/parse_error.h"

#include <gtest/gtest.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>

namespace nereid::cli {
namespace {

std::string said(std::vector<std::string> words) {
  CLI::App app;
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve", "");
  int port = 0;
  std::string model;
  serve->add_option("model", model);
  serve->add_option("--http-port,--port", port);
  app.add_subcommand("generate", "");
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(words);
  } catch (const CLI::ParseError&) {
    return unknown_words_text(app);
  }
  return "parsed";
}

TEST(ParseError, TheNearestFlagIsNamed) {
  EXPECT_EQ(said({"serve", "m", "--prot", "1"}), "unknown flag '--prot'. Did you mean '--port'?\n");
  EXPECT_EQ(said({"serve", "m", "--htp-port=1"}),
            "unknown flag '--htp-port'. Did you mean '--http-port'?\n");
  EXPECT_EQ(said({"serve", "m", "--colour"}), "unknown flag '--colour'.\n");
  EXPECT_EQ(said({"serve", "m", "n"}), "unexpected word 'n'.\n");
  EXPECT_EQ(said({"serv", "m", "--x"}), "unexpected word 'serv'. Did you mean 'serve'?\n");
}

TEST(ParseError, OtherErrorsAreLeftToTheParser) {
  EXPECT_EQ(said({"serve", "m", "--port", "x"}), "");
  EXPECT_EQ(said({"serve", "m", "--port", "1"}), "parsed");
}

}  // namespace
}  // namespace nereid::cli
