#include "cli/flags/arguments.h"

namespace nereid::cli {
namespace {

StatusOr<const ArgumentSpec*> find_option(const std::vector<ArgumentSpec>& specs,
                                          std::string_view name) {
  const ArgumentSpec* found = nullptr;
  for (const auto& spec : specs) {
    if (name == spec.name || name == spec.short_name) return &spec;
    if (!name.starts_with("--") || !std::string_view(spec.name).starts_with(name)) continue;
    if (found) {
      return invalid_argument("ambiguous option: {} could match {}, {}", name, found->name,
                              spec.name);
    }
    found = &spec;
  }
  if (!found) return invalid_argument("unrecognized arguments: {}", name);
  return found;
}

}  // namespace

StatusOr<ParsedArguments> parse_arguments(const std::vector<ArgumentSpec>& specs, int argc,
                                          char** argv) {
  ParsedArguments out;
  bool only_words = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (only_words || word.size() < 2 || word[0] != '-') {
      out.words.emplace_back(word);
    } else if (word == "--") {
      only_words = true;
    } else if (word == "--help" || word == "-h") {
      out.wants_help = true;
    } else {
      const size_t equals = word.find('=');
      ASSIGN_OR_RETURN(const ArgumentSpec* spec, find_option(specs, word.substr(0, equals)));
      const bool takes_value = *spec->value != '\0';
      if (!takes_value && equals != word.npos) {
        return invalid_argument("argument {}: takes no value, got '{}'", spec->name, word);
      }
      if (takes_value && equals == word.npos && i + 1 == argc) {
        return invalid_argument("argument {}: expected one argument", spec->name);
      }
      out.options[spec->name] = !takes_value          ? ""
                                : equals != word.npos ? std::string(word.substr(equals + 1))
                                                      : std::string(argv[++i]);
    }
  }
  return out;
}

std::string usage_text(std::string_view name, std::string_view words,
                       const std::vector<ArgumentSpec>& specs) {
  std::string text = fmt::format("usage: {} [options] {}\n\noptions:\n", name, words);
  for (const auto& spec : specs) {
    std::string flag = *spec.short_name ? fmt::format("{}, ", spec.short_name) : "";
    flag += spec.name;
    if (*spec.value) flag += fmt::format(" {}", spec.value);
    text += fmt::format("  {:40} {}\n", flag, spec.help);
  }
  return text;
}

}  // namespace nereid::cli
