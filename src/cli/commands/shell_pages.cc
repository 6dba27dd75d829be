// nereid man, nereid completions: pages and scripts made of the flags of every command.
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "cli/commands/commands.h"
#include "cli/flags/completions.h"
#include "cli/flags/man_page.h"
#include "cli/flags/options.h"

namespace nereid::cli {
namespace {

using PageWriter = std::function<std::string(const CommandText&)>;

std::vector<CommandText> all_commands(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr))
    commands.push_back({.name = command->get_name(), .help = command->get_description()});
  return commands;
}

void print_page(const CLI::App& command, const PageWriter& write) {
  const std::span<const Tool> tools = all_tools();
  const auto tool = std::ranges::find_if(
      tools, [&](const Tool& tool) { return tool.help && tool.name == command.get_name(); });
  fmt::print("{}", write(tool == tools.end() ? command_text(command) : tool_text(*tool)));
}

Status print_man(const CLI::App& app, const std::string& name) {
  if (name.empty()) {
    fmt::print("{}", man_page_of_all(app.get_description(), all_commands(app)));
    return ok();
  }
  std::set<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.insert(command->get_name());
    if (command->get_name() != name) continue;
    print_page(*command, man_page);
    return ok();
  }
  return invalid_argument("man: no command '{}'.{}", name.substr(0, 80),
                          did_you_mean(name.substr(0, 80), names));
}

}  // namespace

void add_shell_pages(CLI::App& app, int& exit_code) {
  const auto name = std::make_shared<std::string>();
  CLI::App* const man = app.add_subcommand("man", "print a man page (man -l FILE shows it)");
  man->add_option("command", *name, "the command; without one: nereid(1)");
  man->callback([=, &app, &exit_code] {
    if (const Status status = print_man(app, *name); !status.ok()) exit_code = fail(status);
  });
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
      print_page(*command, [kind](const CommandText& text) { return completions_of(kind, text); });
    fmt::print("{}", end_completions(kind));
  });
}

}  // namespace nereid::cli
