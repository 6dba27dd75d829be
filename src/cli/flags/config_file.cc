// See config_file.h.
#include "cli/flags/config_file.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "base/blanks.h"
#include "base/file.h"
#include "base/nearest.h"

namespace nereid::cli {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr const char* kOwnFlags[] = {"help", "config", "no-config", "print-config"};

std::string with_dashes(std::string_view key) {
  std::string out(key);
  std::ranges::replace(out, '_', '-');
  return out;
}

// Options by the names that keys may have.
std::map<std::string, CLI::Option*> keys_of(CLI::App& command) {
  std::map<std::string, CLI::Option*> out;
  for (CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) out.emplace(with_dashes(name), option);
    if (option->get_positional()) out.emplace(option->get_name(/*positional=*/true), option);
  }
  for (const char* own : kOwnFlags) out.erase(own);
  return out;
}

// A TOML value as words of a command line; nullopt: a table, a date, a list of lists.
std::optional<std::vector<std::string>> words_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return {{text->get()}};
  if (const auto* number = node.as_integer()) return {{std::to_string(number->get())}};
  if (const auto* number = node.as_floating_point()) return {{fmt::format("{}", number->get())}};
  if (const auto* flag = node.as_boolean()) return {{flag->get() ? "true" : "false"}};
  const toml::array* const list = node.as_array();
  if (!list) return std::nullopt;
  std::vector<std::string> words;
  for (const toml::node& element : *list) {
    const auto word = element.is_array() ? std::nullopt : words_of(element);
    if (!word) return std::nullopt;
    words.push_back(word->front());
  }
  return words;
}

struct Given {
  CLI::Option* option;
  std::string place;  // "FILE:LINE: key 'x'"
};

// Line `number` of the text, from 1.
std::string_view line_of(std::string_view text, uint32_t number) {
  for (; number > 1 && !text.empty(); --number)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

// A hint for a line that is no TOML; "" = none.
std::string toml_hint(std::string_view line) {
  line = without_blanks(line);
  const size_t equals = line.find('=');
  if (equals == line.npos) return line.empty() ? "" : "; a line is KEY = VALUE";
  const std::string_view key = without_blanks(line.substr(0, equals));
  std::string_view value = without_blanks(line.substr(equals + 1));
  if (value.empty()) return fmt::format("; the value of '{}' is missing", key);
  if (value == "True" || value == "False" || value == "TRUE" || value == "FALSE")
    return "; expected true or false";
  value = without_blanks(value.substr(0, value.find('#')));
  if (value.find_first_of("\"'[]{}") != value.npos) return "";
  return fmt::format("; texts stand in quotes: {} = \"{}\"", key, value);
}

StatusOr<toml::table> parse_toml(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxConfigBytes));
  toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const uint32_t number = error.source().begin.line;
    return invalid_argument("{}:{}:{}: {}{}", file.string(), number, error.source().begin.column,
                            std::string(error.description()),
                            toml_hint(line_of(text, number).substr(0, 200)));
  }
  return std::move(parsed).table();
}

}  // namespace

OptionSources::OptionSources(const CLI::App& command) {
  const auto parsed = command.parse_order();
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const bool is_on_line = std::ranges::find(parsed, option) != parsed.end();
    set(option, is_on_line
                    ? option->get_positional() ? "command line" : "flag " + option->get_name()
                    : "environment " + option->get_envname());
  }
}

std::string OptionSources::of(const CLI::Option* option) const {
  const auto found = sources_.find(option);
  return found == sources_.end() ? "default" : found->second;
}

void OptionSources::set(const CLI::Option* option, std::string source) {
  sources_[option] = std::move(source);
}

Status apply_config_file(CLI::App& command, const std::filesystem::path& file,
                         OptionSources& sources) {
  ASSIGN_OR_RETURN(const toml::table table, parse_toml(file));
  const std::map<std::string, CLI::Option*> keys = keys_of(command);
  std::set<std::string> names;
  for (const auto& [name, option] : keys) names.insert(name);
  std::map<const CLI::Option*, std::string> seen;
  std::vector<Given> given;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string place = fmt::format("{}:{}", file.string(), key.source().begin.line);
    const std::string where = fmt::format("{}: key '{}'", place, name.substr(0, 80));
    const auto known = keys.find(with_dashes(name));
    if (known == keys.end())
      return invalid_argument("{}: no flag has that name.{}", where,
                              did_you_mean(with_dashes(name), names));
    CLI::Option* const option = known->second;
    if (!seen.emplace(option, name).second)
      return invalid_argument("{}: the same flag as key '{}'", where, seen[option]);
    const auto words = words_of(node);
    if (!words)
      return invalid_argument(
          "{}: expected a text, a number, true or false, or a list of these; keys are flags, so "
          "there are no tables",
          where);
    if (sources.has(option)) continue;  // the command line and the environment count more
    for (const std::string& word : *words) option->add_result(word);
    sources.set(option, place);
    given.push_back({option, where});
  }
  // Checks of one flag may ask whether another one is there, so all are given first.
  for (const Given& one : given) {
    if (one.option->count() == 0) continue;  // an empty list
    try {
      one.option->run_callback();
    } catch (const CLI::Error& error) {
      return invalid_argument("{}: {}", one.place, error.what());
    }
  }
  return ok();
}

std::filesystem::path default_config_file() {
  std::filesystem::path folder;
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config && *config)
    folder = config;
  else if (const char* home = std::getenv("HOME"); home && *home)
    folder = std::filesystem::path(home) / ".config";
  std::error_code error;
  for (const std::filesystem::path& place : {folder, std::filesystem::path("/etc")}) {
    const auto file = place / "nereid" / "nereid.toml";
    if (!place.empty() && std::filesystem::exists(file, error)) return file;
  }
  return {};
}

}  // namespace nereid::cli
