// See flags_page.h.
#include "cli/flags/flags_page.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "cli/commands/serve_options.h"
#include "config/engine_options.h"

namespace nereid::cli {
namespace {

// In a cell of a table, where a bar and the end of a line would end it.
std::string code_cell(std::string_view text) {
  std::string out = "`";
  for (const char c : text) c == '|' ? out.append("\\|") : out.append(1, c == '\n' ? ' ' : c);
  return out + "`";
}

// Words, of which nothing becomes HTML.
std::string word_cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|')
      out += "\\|";
    else if (c == '<')
      out += "&lt;";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string names_of(const FlagText& flag) {
  std::vector<std::string> names;
  for (const std::string& name : flag.names) names.push_back(code_cell(name));
  return fmt::format("{}", fmt::join(names, ", "));
}

// A flag's value name with the default, and the allowed words where the name lacks them.
std::string value_of(const FlagText& flag) {
  if (flag.value.empty()) return "";
  const bool lists = flag.choices.empty() || flag.value.find('{') != std::string::npos;
  return code_cell(flag.value) +
         (lists ? "" : word_cell(fmt::format(": {}", fmt::join(flag.choices, ", "))));
}

}  // namespace

std::set<std::string> flags_of_options_page() {
  std::set<std::string> names;
  ExecutorConfig config = config::served_defaults();
  ServeOptions server;
  for (const config::Options& options : {config::engine_options(config), server_options(server)})
    for (const config::Option& option : options)
      for (std::string& name : config::split(option.flag, ',')) names.insert(std::move(name));
  return names;
}

std::string flags_section(const CommandText& command, const std::set<std::string>& elsewhere) {
  std::string text = fmt::format("\n## {}\n\n{}\n", command.name, word_cell(command.help));
  // Positional words first, then the groups in the order of their first flags.
  std::vector<std::pair<std::string, std::string>> tables = {{"Arguments", ""}};
  size_t num_elsewhere = 0;
  for (const FlagText& flag : command.flags) {
    if (std::ranges::any_of(flag.names, [&](const auto& n) { return elsewhere.contains(n); })) {
      ++num_elsewhere;
      continue;
    }
    const std::string& title = flag.is_word() ? tables[0].first : flag.group;
    auto table = std::ranges::find(tables, title, [](const auto& t) { return t.first; });
    if (table == tables.end()) table = tables.insert(table, {title, ""});
    table->second +=
        fmt::format("| {} | {} | {} |\n", names_of(flag), value_of(flag), word_cell(flag.help));
  }
  if (num_elsewhere > 0)
    text += fmt::format("\nIt has {} flags of [options.md](options.md), too.\n", num_elsewhere);
  for (const auto& [title, rows] : tables)
    if (!rows.empty())
      text += fmt::format("\n| {} | Value [default] | Meaning |\n|---|---|---|\n{}",
                          word_cell(title), rows);
  if (!command.notes.empty()) text += "\n" + word_cell(command.notes) + "\n";
  return text;
}

}  // namespace nereid::cli
