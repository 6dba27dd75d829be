// Man pages and completions of both kinds of command lines.
#include "cli/flags/command_text.h"

#include <gtest/gtest.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>

#include "cli/commands/commands.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/completions.h"
#include "cli/flags/man_page.h"
#include "cli/triton/triton_flags.h"

namespace nereid::cli {
namespace {

constexpr ArgFlag kSampleFlags[] = {
    {"--dtype,-d", ArgKind::kChoice, config::Use::kActed, "bf16|int8", "bf16",
     "type of the weights; and more"},
    {"--out", ArgKind::kText, config::Use::kIgnored, "", "", "it's a 'folder'"},
    {"--fast", ArgKind::kFlag, config::Use::kActed, "", "", ".starts with a dot"},
};
const ArgTable kSampleTable{"sample", kSampleFlags, "FILE"};

CommandText sample_text(const std::string& help) {
  return command_text("sample", help, options_of(kSampleFlags), "FILE");
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

const FlagText* find(const CommandText& command, std::string_view name) {
  for (const FlagText& flag : command.flags)
    if (std::ranges::find(flag.names, name) != flag.names.end()) return &flag;
  return nullptr;
}

TEST(CommandText, TablesAndSubcommandsGiveTheSame) {
  CLI::App app;
  std::string dtype = "bf16", file;
  bool fast = false;
  CLI::App* const command = app.add_subcommand("sample", "help");
  command->add_option("FILE", file);
  command->add_option("-d,--dtype", dtype, "type")
      ->check(CLI::IsMember(std::vector<std::string>{"bf16", "int8"}))
      ->capture_default_str();
  command->add_flag("--fast", fast, "speed");
  for (const CommandText& text : {command_text(*command), sample_text("help")}) {
    EXPECT_EQ(text.name, "sample");
    EXPECT_EQ(text.help, "help");
    ASSERT_NE(find(text, "FILE"), nullptr);
    EXPECT_TRUE(find(text, "FILE")->is_word());
    ASSERT_NE(find(text, "-d"), nullptr);
    EXPECT_EQ(find(text, "-d"), find(text, "--dtype"));
    EXPECT_EQ(find(text, "-d")->choices, (std::vector<std::string>{"bf16", "int8"}));
    EXPECT_EQ(find(text, "--fast")->value, "");
    EXPECT_NE(find(text, "--help"), nullptr);
  }
}

TEST(CommandText, OptionsOfServeHaveTheirDeclaration) {
  CLI::App app;
  int exit_code = 0;
  add_serve(app, exit_code);
  const CommandText serve = command_text(*app.get_subcommand("serve"));
  ASSERT_NE(find(serve, "--weights"), nullptr);
  EXPECT_EQ(find(serve, "--weights")->value, "WORD [auto]");
  EXPECT_EQ(find(serve, "--weights")->group, "Weights and engine");
  EXPECT_EQ(find(serve, "--weights")->choices[0], "auto");
  EXPECT_EQ(find(serve, "--port"), find(serve, "--http-port"));
  EXPECT_EQ(find(serve, "--ollama")->value, "");
  EXPECT_TRUE(find(serve, "model")->is_word());
  TritonOptions options;
  EXPECT_NE(find(command_text("x", "", triton_flags(options)), "--model-repository"), nullptr);
}

TEST(ManPage, TextIsPrintedUnchanged) {
  const std::string page = man_page(sample_text("does x-y"));
  EXPECT_TRUE(has(page, ".TH \"NEREID-SAMPLE\" 1"));
  EXPECT_TRUE(has(page, "nereid\\-sample \\- does x\\-y\n"));
  EXPECT_TRUE(has(page, " \\fIFILE\\fR\n.SH ARGUMENTS\n"));
  EXPECT_TRUE(has(page, "\n\\fB\\-\\-dtype\\fR, \\fB\\-d\\fR \\fI{bf16,int8}\\fR\n"));
  EXPECT_TRUE(has(page, "\n\\&.starts with a dot\n"));
  EXPECT_TRUE(has(page, "it's a 'folder' (accepted, has no effect)"));
}

TEST(ManPage, TheLastParagraphOfHelpIsThere) {
  CLI::App app;
  app.add_subcommand("sample", "help")->footer("See x-y.");
  EXPECT_TRUE(
      has(man_page(command_text(*app.get_subcommand("sample"))), ".SH NOTES\nSee x\\-y.\n"));
}

TEST(ManPage, TheFirstPageListsCommands) {
  const std::vector<CommandText> commands = {{.name = "a", .help = "x"}, {.name = "b-c"}};
  const std::string page = man_page_of_all("Words.", commands);
  EXPECT_TRUE(has(page, ".TP\n\\fBa\\fR\nx\n"));
  EXPECT_TRUE(has(page, ".BR nereid-a (1),\n.BR nereid-b\\-c (1)\n"));
}

TEST(Completions, PiecesHaveFlagsValuesAndClauses) {
  const CommandText text = sample_text("does a thing: x");
  const std::string bash = completions_of(Shell::kBash, text);
  EXPECT_TRUE(has(bash, "flags='-h --help --dtype -d --out --fast'\n"));
  EXPECT_TRUE(has(bash, "--dtype|-d) values='bf16 int8' ;;"));
  const std::string zsh = completions_of(Shell::kZsh, text);
  EXPECT_TRUE(has(zsh, "'*--dtype=[type of the weights]:value:(bf16 int8)'"));
  EXPECT_TRUE(has(zsh, "'*--out=[it'\\''s a '\\''folder'\\'']:value:_files'"));
  EXPECT_TRUE(has(zsh, "'*--fast[.starts with a dot]'"));
  const std::string fish = completions_of(Shell::kFish, text);
  EXPECT_TRUE(has(fish, " -l dtype -s d -x -a 'bf16 int8' -d 'type of the weights'\n"));
  EXPECT_TRUE(has(fish, " -l out -r -d 'it\\'s a \\'folder\\''\n"));
  const std::vector<CommandText> commands = {text};
  EXPECT_TRUE(has(begin_completions(Shell::kBash, commands), "--version sample'"));
  EXPECT_TRUE(has(begin_completions(Shell::kZsh, commands), "'sample:does a thing'"));
  EXPECT_TRUE(has(begin_completions(Shell::kFish, commands), "-a sample -d 'does a thing'"));
}

TEST(HelpWriter, TakesThePlaceOfTheText) {
  set_help_writer([](const ArgTable& table) { return "of " + std::string(table.program); });
  EXPECT_EQ(help_text(kSampleTable), "of sample");
  set_help_writer(nullptr);
  EXPECT_TRUE(help_text(kSampleTable).starts_with("usage: sample"));
  EXPECT_TRUE(
      has(help_text(kSampleTable),
          "--dtype, -d {bf16,int8}\n        type of the weights; and more; default bf16\n"));
}

}  // namespace
}  // namespace nereid::cli
