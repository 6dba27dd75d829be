// See declare_flags.h.
#include "cli/flags/declare_flags.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flags/missing_path.h"

namespace nereid::cli {
namespace {

using config::Option;
using config::Options;

bool turns_off(const Option& option) { return std::string_view(option.flag).starts_with("--no-"); }

CLI::Option* add_bool(CLI::App& command, const Option& option, bool* to, const std::string& help) {
  if (!turns_off(option)) return command.add_flag(option.flag, *to, help);
  return command.add_flag_function(
      option.flag, [to](int64_t count) { *to = count <= 0; }, "turns off: " + help);
}

// The lowest number that the flag takes.
double lowest(const Option& option) {
  return option.zero_is_default ? std::min(option.range.low, 0.0) : option.range.low;
}

template <class Number>
CLI::Validator range_check(const Option& option) {
  if constexpr (std::is_integral_v<Number>)
    return CLI::Range(static_cast<int64_t>(lowest(option)),
                      static_cast<int64_t>(option.range.high));
  return CLI::Range(lowest(option), option.range.high);
}

template <class Number>
CLI::Option* add_number(CLI::App& command, const Option& option, Number* to,
                        const std::string& help) {
  CLI::Option* flag = nullptr;
  if (option.zero_is_default) {
    flag = command.add_option_function<Number>(
        option.flag, [to](const Number& value) { *to = value == 0 ? *to : value; }, help);
  } else {
    flag = command.add_option(option.flag, *to, help);
  }
  if (option.is_bytes) flag->transform(CLI::AsSizeValue(false));
  if (*option.words) return flag->check(CLI::IsMember(config::words_of(option)));
  return flag->check(range_check<Number>(option));
}

CLI::Option* add_as(CLI::App& command, const Option& option, bool* to, const std::string& help) {
  return add_bool(command, option, to, help);
}
CLI::Option* add_as(CLI::App& command, const Option& option, std::string* to,
                    const std::string& help) {
  CLI::Option* const flag = command.add_option(option.flag, *to, help);
  if (*option.words && !option.flag_takes_any) flag->check(CLI::IsMember(config::words_of(option)));
  return flag;
}
CLI::Option* add_as(CLI::App& command, const Option& option, std::filesystem::path* to,
                    const std::string& help) {
  CLI::Option* const flag = command.add_option(option.flag, *to, help);
  if (option.must_exist)
    flag->check(
        [](const std::string& path) { return std::string(message(check_exists("", path))); });
  return flag;
}
CLI::Option* add_as(CLI::App& command, const Option& option, std::vector<std::string>* to,
                    const std::string& help) {
  return command.add_option(option.flag, *to, help);
}
template <class Number>
CLI::Option* add_as(CLI::App& command, const Option& option, std::optional<Number>* to,
                    const std::string& help) {
  const bool keeps = option.zero_is_default;
  return command
      .add_option_function<Number>(
          option.flag,
          [to, keeps](const Number& value) { *to = keeps && value == 0 ? *to : value; }, help)
      ->check(range_check<Number>(option));
}
template <class Number>
CLI::Option* add_as(CLI::App& command, const Option& option, Number* to, const std::string& help) {
  return add_number(command, option, to, help);
}
CLI::Option* add_as(CLI::App& command, const Option& option, const config::Action& act,
                    const std::string& help) {
  return command.add_option_function<std::vector<std::string>>(
      option.flag,
      [act, option](const std::vector<std::string>& values) {
        for (const std::string& value : values)
          if (const Status status = act(option, value); !status.ok())
            throw CLI::ValidationError(option.flag, std::string(message(status)));
      },
      help);
}
CLI::Option* add_as(CLI::App& command, const Option& option, config::WordField to,
                    const std::string& help) {
  const std::vector<std::string> words = config::words_of(option);
  return command
      .add_option_function<std::string>(
          option.flag,
          [to, words](const std::string& word) {
            to.set(to.value, static_cast<size_t>(std::find(words.begin(), words.end(), word) -
                                                 words.begin()));
          },
          help)
      ->check(CLI::IsMember(words));
}

// Text behind the flag's name in --help: "N (0 to 64) [4]".
std::string usage_of(const Option& option, const Options& all) {
  const std::string kind = std::visit(
      [&](const auto& field) -> std::string {
        using T = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<T, bool*>) return "";
        if (option.is_bytes) return "BYTES (2147483648, 2G, 512M)";
        if (*option.words) return "WORD";
        if constexpr (std::is_same_v<T, std::filesystem::path*>) return "PATH";
        if constexpr (std::is_same_v<T, float*> || std::is_same_v<T, double*> ||
                      std::is_same_v<T, std::optional<double>*>)
          return fmt::format("X ({} to {})", lowest(option), option.range.high);
        if constexpr (std::is_same_v<T, std::string*> ||
                      std::is_same_v<T, std::vector<std::string>*> ||
                      std::is_same_v<T, config::Action>)
          return "TEXT";
        return fmt::format("N ({:.0f} to {:.0f})", lowest(option), option.range.high);
      },
      option.field);
  if (kind.empty()) return " ";  // "" would show what CLI11 has to say
  const std::string fallback = config::default_of(option, all, &Option::flag);
  return fallback.empty() ? kind : fmt::format("{} [{}]", kind, fallback);
}

}  // namespace

void declare_flags(CLI::App& command, const Options& options) {
  for (const Option& option : options) {
    if (!*option.flag) continue;
    const std::string help = config::refer(option.help, options, &Option::flag);
    CLI::Option* const flag = std::visit(
        [&](const auto& field) { return add_as(command, option, field, help); }, option.field);
    flag->group(option.group)->option_text(usage_of(option, options));
    if (const std::string name = config::environment_of(option); !name.empty()) flag->envname(name);
    if (option.problem) flag->check(option.problem);
  }
}

}  // namespace nereid::cli
