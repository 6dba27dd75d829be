#include "cli/flags/parse_error.h"

#include <CLI/Option.hpp>
#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/nearest.h"
#include "cli/flags/foreign_flags.h"

namespace nereid::cli {
namespace {

std::set<std::string> names_of(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
  }
  return names;
}

std::set<std::string> subcommands_of(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.insert(command->get_name());
  return names;
}

// Whether `text` has `name` as a whole flag.
bool names_flag(std::string_view text, std::string_view name) {
  const size_t begin = text.find(name), end = begin + name.size();
  if (begin == text.npos) return false;
  return end == text.size() ||
         (std::isalnum(static_cast<unsigned char>(text[end])) == 0 && text[end] != '-');
}

}  // namespace

std::string unknown_words_text(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  std::string text;
  bool is_value = false;  // true: value of an unknown flag
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    const bool is_flag = word.starts_with('-') && word.size() > 1;
    if (is_flag) {
      const std::string name = word.substr(0, word.find('='));
      const ForeignFlag* foreign = find_foreign_flag(name);
      text += foreign ? fmt::format("unknown flag '{}', which is of {}: {}.\n", name,
                                    foreign->program, foreign->advice)
                      : fmt::format("unknown flag '{}'.{}\n", name,
                                    did_you_mean(name, names_of(command)));
    } else if (!is_value) {
      const std::set<std::string> known =
          chosen.empty() ? subcommands_of(app) : std::set<std::string>();
      const ForeignFlag* foreign = chosen.empty() ? find_foreign_command(word) : nullptr;
      if (foreign) {
        text += fmt::format("unknown command '{}', which is of {}: {}.\n", word, foreign->program,
                            foreign->advice);
        break;
      }
      text += fmt::format("unexpected word '{}'.{}\n", word, did_you_mean(word, known));
    }
    if (chosen.empty()) break;  // later words may be anything
    is_value = is_flag;
  }
  return text;
}

std::string variable_of_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return "";
  const std::vector<CLI::Option*> on_line = chosen.front()->parse_order();
  for (const CLI::Option* option : std::as_const(*chosen.front()).get_options()) {
    if (option->get_envname().empty() || option->count() == 0 ||
        std::ranges::find(on_line, option) != on_line.end() ||
        !names_flag(error.what(), option->get_name()))
      continue;
    return fmt::format("environment variable {}: ", option->get_envname());
  }
  return "";
}

}  // namespace nereid::cli
