// See completions.h.
#include "cli/flags/completions.h"

#include <fmt/ranges.h>

namespace nereid::cli {
namespace {

constexpr std::string_view kBashBegin =
    R"(# Sets `flags` of the command $1 and `values` of its flag $2.
_nereid_flags() {
  case $1 in
)";

constexpr std::string_view kBashEnd = R"(  esac
}
_nereid() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} flags= values=
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "$_nereid_commands" -- "$word"))
    return
  fi
  # --flag=value is three words.
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  _nereid_flags "${COMP_WORDS[1]}" "$before"
  [ -n "$values" ] || [[ $word != -* ]] || values=$flags
  COMPREPLY=($(compgen -W "$values" -- "$word"))
}
complete -o bashdefault -o default -F _nereid nereid
)";

constexpr std::string_view kZshBegin = R"(#compdef nereid
# zsh completion for nereid; printed by `nereid completions zsh`
_nereid() {
  local -a commands
  commands=(
)";

constexpr std::string_view kZshMiddle = R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
)";

constexpr std::string_view kZshEnd = R"(  esac
}
if [ "$funcstack[1]" = _nereid ]; then
  _nereid "$@"
else
  compdef _nereid nereid
fi
)";

// The first clause, which is what a list of completions has room for.
std::string clause(std::string_view help) {
  constexpr size_t kLeast = 12, kWidth = 70;
  help = help.substr(0, std::min({help.find(';', kLeast), help.find(": ", kLeast),
                                  help.find(" (", kLeast), help.size()}));
  if (help.size() <= kWidth) return std::string(help);
  help = help.substr(0, kWidth);
  return std::string(help.substr(0, help.rfind(' ')));
}

// `prefix` before each character that is one of `special`.
std::string escaped(std::string_view text, std::string_view special, std::string_view prefix) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != special.npos) out += prefix;
    out += c;
  }
  return out;
}

// In single quotes of bash and zsh, and of fish.
std::string in_quotes(std::string_view text) { return "'" + escaped(text, "'", "'\\'") + "'"; }
std::string in_fish_quotes(std::string_view text) { return "'" + escaped(text, "\\'", "\\") + "'"; }

std::string joined(const std::vector<std::string>& words, std::string_view between = " ") {
  return fmt::format("{}", fmt::join(words, between));
}

std::string bash_piece(const CommandText& command) {
  std::vector<std::string> flags;
  std::string values;
  for (const FlagText& flag : command.flags) {
    if (flag.is_word()) continue;
    flags.insert(flags.end(), flag.names.begin(), flag.names.end());
    if (!flag.choices.empty())
      values += fmt::format("        {}) values={} ;;\n", fmt::join(flag.names, "|"),
                            in_quotes(joined(flag.choices)));
  }
  if (!values.empty()) values = "      case $2 in\n" + values + "      esac\n";
  return fmt::format("    {})\n      flags={}\n{}      ;;\n", command.name,
                     in_quotes(joined(flags)), values);
}

std::string zsh_text(std::string_view text) { return escaped(text, "[]:", "\\"); }

std::string zsh_piece(const CommandText& command) {
  std::string specs;
  for (const FlagText& flag : command.flags) {
    if (flag.is_word()) continue;
    std::string value;
    if (!flag.value.empty())
      value = flag.choices.empty() ? ":value:_files"
                                   : fmt::format(":value:({})", fmt::join(flag.choices, " "));
    for (const std::string& name : flag.names) {
      const char* joins = value.empty() ? "" : name.starts_with("--") ? "=" : "+";
      specs += " \\\n        " + in_quotes(fmt::format("*{}{}[{}]{}", name, joins,
                                                       zsh_text(clause(flag.help)), value));
    }
  }
  return fmt::format("    {})\n      _arguments{} \\\n        '*:file:_files'\n      ;;\n",
                     command.name, specs);
}

std::string fish_piece(const CommandText& command) {
  std::string text;
  for (const FlagText& flag : command.flags) {
    if (flag.is_word()) continue;
    text += fmt::format("complete -c nereid -n '__fish_seen_subcommand_from {}'", command.name);
    for (const std::string& name : flag.names)
      text += name.starts_with("--") ? " -l " + name.substr(2)
              : name.size() == 2     ? " -s " + name.substr(1)
                                     : " -o " + name.substr(1);
    if (!flag.choices.empty())
      text += " -x -a " + in_quotes(joined(flag.choices));
    else if (!flag.value.empty())
      text += " -r";
    text += " -d " + in_fish_quotes(clause(flag.help)) + "\n";
  }
  return text;
}

}  // namespace

std::string begin_completions(Shell shell, std::span<const CommandText> commands) {
  if (shell == Shell::kBash) {
    std::string names = "--help --version";
    for (const CommandText& command : commands) names += " " + command.name;
    return fmt::format(
        "# bash completion for nereid; printed by `nereid completions bash`\n"
        "_nereid_commands={}\n{}",
        in_quotes(names), kBashBegin);
  }
  std::string lines;
  for (const CommandText& command : commands) {
    const std::string help = clause(command.help);
    lines += shell == Shell::kZsh
                 ? fmt::format("    {}\n", in_quotes(command.name + ":" + zsh_text(help)))
                 : fmt::format("complete -c nereid -f -n __fish_use_subcommand -a {} -d {}\n",
                               command.name, in_fish_quotes(help));
  }
  if (shell == Shell::kZsh) return std::string(kZshBegin) + lines + std::string(kZshMiddle);
  return "# fish completion for nereid; printed by `nereid completions fish`\n" + lines;
}

std::string completions_of(Shell shell, const CommandText& command) {
  return shell == Shell::kBash  ? bash_piece(command)
         : shell == Shell::kZsh ? zsh_piece(command)
                                : fish_piece(command);
}

std::string end_completions(Shell shell) {
  return std::string(shell == Shell::kBash ? kBashEnd : shell == Shell::kZsh ? kZshEnd : "");
}

}  // namespace nereid::cli
