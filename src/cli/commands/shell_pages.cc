// nereid man, flags, completions: pages and scripts made of the flags of every command.
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "cli/commands/commands.h"
#include "cli/flags/arg_table.h"
#include "cli/flags/completions.h"
#include "cli/flags/flags_page.h"
#include "cli/flags/man_page.h"
#include "cli/flags/options.h"
#include "cli/triton/triton_flags.h"

namespace nereid::cli {
namespace {

using PageWriter = std::function<std::string(const CommandText&)>;

std::vector<CommandText> all_commands(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr))
    commands.push_back({.name = command->get_name(), .help = command->get_description()});
  return commands;
}

// Prints a command's page. The tables of most tools are theirs alone, so a tool prints the page in
// place of its --help.
void print_page(const CLI::App& command, std::span<const Tool> tools, const PageWriter& write) {
  const auto tool = std::ranges::find_if(
      tools, [&](const Tool& tool) { return tool.help && tool.name == command.get_name(); });
  if (tool == tools.end()) return fmt::print("{}", write(command_text(command)));
  if (tool->run == tritonserver_main) {
    TritonOptions options;
    return fmt::print("{}", write(command_text(tool->name, tool->help, triton_flags(options))));
  }
  set_help_writer([&](const ArgTable& table) {
    return write(command_text(tool->name, tool->help, options_of(table.flags), table.words));
  });
  std::string name = tool->name, help = "--help";
  char* words[] = {name.data(), help.data(), nullptr};
  tool->run(2, words);
  set_help_writer(nullptr);
}

Status print_man(const CLI::App& app, std::span<const Tool> tools, const std::string& name) {
  if (name.empty()) {
    fmt::print("{}", man_page_of_all(app.get_description(), all_commands(app)));
    return ok();
  }
  std::set<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.insert(command->get_name());
    if (command->get_name() != name) continue;
    print_page(*command, tools, man_page);
    return ok();
  }
  return invalid_argument("man: no command '{}'.{}", name.substr(0, 80),
                          did_you_mean(name.substr(0, 80), names));
}

constexpr std::string_view kFlagsIntroduction = R"(# Flags of every command

`nereid flags` prints this page from the declarations of the flags, which `--help`, man pages and completions come from, too.
A command is `nereid COMMAND`; names of other programs are programs of their own, too, as links ([commands.md](commands.md)).
Flags of commands that load a model, those of `nereid serve`, and environment variables are in [options.md](options.md).
)";

void print_flags(const CLI::App& app, std::span<const Tool> tools) {
  const std::set<std::string> elsewhere = flags_of_options_page();
  fmt::print("{}", kFlagsIntroduction);
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    const auto named = [&](const Tool& tool) { return tool.name == command->get_name(); };
    const auto tool = std::ranges::find_if(tools, named);
    const auto first = tool == tools.end() ? tool : std::ranges::find(tools, tool->run, &Tool::run);
    if (first != tool)
      fmt::print("\n## {}\n\nThe same as [{}](#{}).\n", tool->name, first->name, first->name);
    else
      print_page(*command, tools,
                 [&](const CommandText& text) { return flags_section(text, elsewhere); });
  }
}

}  // namespace

void add_shell_pages(CLI::App& app, std::span<const Tool> tools, int& exit_code) {
  const auto name = std::make_shared<std::string>();
  CLI::App* const man = app.add_subcommand("man", "print a man page (man -l FILE shows it)");
  man->add_option("command", *name, "the command; without one: nereid(1)");
  man->callback([=, &app, &exit_code] {
    if (const Status status = print_man(app, tools, *name); !status.ok()) exit_code = fail(status);
  });
  app.add_subcommand("flags", "print the flags of every command as Markdown (docs/flags.md)")
      ->callback([=, &app] { print_flags(app, tools); });
  const auto shell = std::make_shared<std::string>();
  CLI::App* const completions =
      app.add_subcommand("completions", "print the completions for a shell");
  completions->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completions->callback([=, &app] {
    const Shell kind = *shell == "bash"  ? Shell::kBash
                       : *shell == "zsh" ? Shell::kZsh
                                         : Shell::kFish;
    fmt::print("{}", begin_completions(kind, all_commands(app)));
    for (const CLI::App* command : std::as_const(app).get_subcommands(nullptr))
      print_page(*command, tools,
                 [kind](const CommandText& text) { return completions_of(kind, text); });
    fmt::print("{}", end_completions(kind));
  });
}

}  // namespace nereid::cli
