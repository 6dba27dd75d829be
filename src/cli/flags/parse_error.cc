#include "cli/flags/parse_error.h"

#include <CLI/Option.hpp>
#include <set>

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

}  // namespace nereid::cli
