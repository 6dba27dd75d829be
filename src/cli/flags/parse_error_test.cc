#include <algorithm>
#include <vector>

#include "cli/flags/parse_error.h"

#include <gtest/gtest.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdlib>

#include "absl/strings/str_split.h"
#include "cli/commands/commands.h"
#include "cli/flags/foreign_flags.h"

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
  std::reverse(words.begin(), words.end());  // CLI11 takes arguments in reverse order
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

TEST(ParseError, FlagsOfOtherServersNameOurs) {
  EXPECT_EQ(said({"serve", "m", "--ctx-size", "4096"}),
            "unknown flag '--ctx-size', which is of SGLang, llama.cpp and TGI: nereid's is "
            "--max-seq-len.\n");
  EXPECT_EQ(
      said({"serve", "m", "-ngl", "99"}),
      "unknown flag '-ngl', which is of llama.cpp: nereid's is --device: cuda:0 has the whole "
      "model on a GPU, cpu none of it.\n");
  EXPECT_EQ(said({"serve", "m", "--gpu-memory-utilization=0.9"}).substr(0, 40),
            "unknown flag '--gpu-memory-utilization',");
  EXPECT_EQ(said({"run", "llama3"}),
            "unknown command 'run', which is of Ollama and vLLM: nereid's are generate, for one "
            "prompt, and serve.\n");
  EXPECT_EQ(find_foreign_command("serve"), nullptr);
  EXPECT_EQ(find_foreign_flag("--port"), nullptr);
  EXPECT_EQ(find_foreign_flag(""), nullptr);
}

// Each flag named in advice exists, and no flag of nereid is in the table.
TEST(ParseError, AdvisedFlagsExist) {
  CLI::App app;
  int exit_code = 0;
  add_serve(app, exit_code);
  const CLI::App* serve = app.get_subcommand("serve");
  for (const ForeignFlag& row : foreign_flags()) {
    const std::vector<std::string> words =
        absl::StrSplit(std::string(row.advice), absl::ByAnyChar(" ,:;()"));
    for (const std::string& word : words) {
      if (!word.starts_with("--")) continue;
      EXPECT_NE(serve->get_option_no_throw(word), nullptr) << word;
    }
    const std::vector<std::string> names = absl::StrSplit(std::string(row.names), ' ');
    for (const std::string& name : names)
      EXPECT_EQ(serve->get_option_no_throw(name), nullptr) << name;
  }
}

TEST(ParseError, OtherErrorsAreLeftToTheParser) {
  EXPECT_EQ(said({"serve", "m", "--port", "x"}), "");
  EXPECT_EQ(said({"serve", "m", "--port", "1"}), "parsed");
}

TEST(ParseError, VariablesWithWrongValuesAreNamed) {
  const auto variable = [](std::vector<std::string> words) -> std::string {
    CLI::App app;
    CLI::App* serve = app.add_subcommand("serve", "");
    int size = 0, port = 0;
    serve->add_option("--size-limit", size)->envname("NEREID_TEST_SIZE");
    serve->add_option("--port,--size", port)->check(CLI::Range(0, 9));
    std::reverse(words.begin(), words.end());
    try {
      app.parse(words);
    } catch (const CLI::ParseError& error) {
      return variable_of_error(app, error);
    }
    return "parsed";
  };
  ::setenv("NEREID_TEST_SIZE", "x", 1);
  EXPECT_EQ(variable({"serve"}), "environment variable NEREID_TEST_SIZE: ");
  EXPECT_EQ(variable({"serve", "--size-limit", "x"}), "") << "the command line's value";
  ::setenv("NEREID_TEST_SIZE", "1", 1);
  EXPECT_EQ(variable({"serve", "--port", "10"}), "");
  EXPECT_EQ(variable({"serve"}), "parsed");
  ::unsetenv("NEREID_TEST_SIZE");
}

}  // namespace
}  // namespace nereid::cli
