// See command_text.h.
#include "cli/flags/command_text.h"

#include <CLI/Option.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "cli/flags/arg_table.h"

namespace nereid::cli {
namespace {

// "TEXT:{a,b}", as CLI::IsMember writes it.
std::vector<std::string> members_of(const std::string& type_name) {
  const size_t open = type_name.find(":{");
  if (open == type_name.npos || !type_name.ends_with('}')) return {};
  return absl::StrSplit(type_name.substr(open + 2, type_name.size() - open - 3), ',');
}

std::string placeholder_of(const CLI::Option& option) {
  if (!option.get_option_text().empty())
    return std::string(absl::StripAsciiWhitespace(option.get_option_text()));
  if (option.get_items_expected_max() == 0) return "";
  std::string text = option.get_type_name();
  text.resize(std::min(text.find(':'), text.size()));
  const std::string& fallback = option.get_default_str();
  return fallback.empty() ? text : text + " [" + fallback + "]";
}

}  // namespace

CommandText command_text(const CLI::App& command) {
  CommandText text{.name = command.get_name(), .help = command.get_description()};
  for (const CLI::Option* option : command.get_options()) {
    FlagText flag{.value = placeholder_of(*option),
                  .choices = members_of(option->get_type_name()),
                  .group = option->get_group(),
                  .help = option->get_description()};
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    if (flag.names.empty()) flag.names.push_back(option->get_name());
    text.flags.push_back(std::move(flag));
  }
  text.notes = command.get_footer();
  return text;
}

CommandText command_text(const std::string& name, const std::string& help,
                         const config::Options& options, std::string_view words) {
  CommandText text{.name = name, .help = help};
  for (const std::string& word : config::split(words, ' ')) text.flags.push_back({.names = {word}});
  text.flags.push_back({.names = {"-h", "--help"}, .group = "Options", .help = "print the flags"});
  for (const config::Option& option : options)
    text.flags.push_back({.names = config::split(option.flag, ','),
                          .value = value_text(option),
                          .choices = config::words_of(option),
                          .group = *option.group ? option.group : "Options",
                          .help = sentence_of(option)});
  return text;
}

}  // namespace nereid::cli
