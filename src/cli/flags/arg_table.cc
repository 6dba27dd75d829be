#include "cli/flags/arg_table.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "base/nearest.h"

namespace nereid::cli {
namespace {

std::vector<std::string> names_of(const config::Option& option) {
  return config::split(option.flag, ',');
}

// Dashes inside of a name as underscores.
std::string canonical(std::string_view name) {
  std::string out(name);
  std::replace(out.begin() + static_cast<ptrdiff_t>(std::min<size_t>(2, out.size())), out.end(),
               '-', '_');
  return out;
}

template <class Number>
std::optional<Number> to_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "-1" is a value, "-x" is a flag.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !to_number<double>(word);
}

Status check_value(const ArgFlag& flag, const config::Option& option, const std::string& value) {
  const std::string_view name = config::first_flag(option);
  const std::string shown = value.substr(0, 80);
  const bool is_integer = flag.kind == ArgKind::kInteger;
  if (is_integer || flag.kind == ArgKind::kNumber) {
    const std::optional<double> number = to_number<double>(value);
    if (!number || !std::isfinite(*number) || (is_integer && !to_number<int64_t>(value)))
      return invalid_argument("argument {}: invalid {} value: '{}'", name,
                              is_integer ? "int" : "float", shown);
    if (*number < flag.range.low || *number > flag.range.high)
      return invalid_argument("argument {}: {} is not in [{}, {}]", name, shown, flag.range.low,
                              flag.range.high);
  }
  const std::vector<std::string> allowed = config::words_of(option);
  if (allowed.empty() || std::ranges::find(allowed, value) != allowed.end()) return ok();
  return invalid_argument("argument {}: invalid choice: '{}' (choose from '{}')", name, shown,
                          fmt::join(allowed, "', '"));
}

const char* note_of(config::Use use) {
  switch (use) {
    case config::Use::kActed:
      return "";
    case config::Use::kNoted:
      return " (recorded only)";
    case config::Use::kIgnored:
      return " (accepted, has no effect)";
    case config::Use::kOnly:
      return " (only the default works so far)";
  }
  return "";
}

const char* value_name_of(ArgKind kind) {
  switch (kind) {
    case ArgKind::kFlag:
      return "";
    case ArgKind::kInteger:
      return "N";
    case ArgKind::kNumber:
      return "X";
    case ArgKind::kList:
      return "WORD...";
    default:
      return "TEXT";
  }
}

StatusOr<const config::Option*> find_flag(const config::Options& options, const std::string& word) {
  const FoundOption found = find_option(options, word, /*same_dash=*/true);
  if (found.option) return found.option;
  if (!found.candidates.empty())
    return invalid_argument("ambiguous option: {} could match {}", word,
                            fmt::join(found.candidates, ", "));
  return invalid_argument("unrecognized arguments: {}{}", word.substr(0, 80),
                          nearest_option(options, canonical(word).substr(0, 80)));
}

}  // namespace

FoundOption find_option(const config::Options& options, std::string_view name, bool same_dash) {
  const auto form = [&](std::string_view text) {
    return same_dash ? canonical(text) : std::string(text);
  };
  const std::string wanted = form(name);
  FoundOption out;
  for (const config::Option& option : options)
    for (const std::string& other : names_of(option)) {
      if (form(other) == wanted) return {.option = &option};
      if (!wanted.starts_with("--") || wanted.size() == 2 || !form(other).starts_with(wanted))
        continue;
      const bool is_first = out.candidates.empty();
      out.option = is_first || out.option == &option ? &option : nullptr;
      out.candidates.push_back(other);
    }
  return out;
}

std::string nearest_option(const config::Options& options, std::string_view name) {
  std::set<std::string> known;
  for (const config::Option& option : options)
    for (std::string& other : names_of(option)) known.insert(std::move(other));
  return did_you_mean(std::string(name), known);
}

config::Options options_of(std::span<const ArgFlag> flags, Args* args) {
  config::Options out;
  for (const ArgFlag& flag : flags) {
    const bool is_feature = flag.kind == ArgKind::kFeature;
    const bool may_stand_alone =
        is_feature || flag.kind == ArgKind::kFlag || flag.kind == ArgKind::kMaybe;
    const char* const words = is_feature ? "enable|disable" : flag.choices;
    const std::string first_word(words, std::strcspn(words, "|"));
    out.push_back({.name = flag.names,
                   .field =
                       [args, &flag](const config::Option& option, const std::string& value) {
                         return args->set(flag, option, value);
                       },
                   .help = flag.help,
                   .range = flag.range,
                   .words = words,
                   .flag = flag.names,
                   .default_text = flag.fallback,
                   .value_name = value_name_of(flag.kind),
                   .alone = !may_stand_alone ? ""
                            : *words         ? first_word
                                             : "enable",
                   .is_list = flag.kind == ArgKind::kList,
                   .use = flag.use});
  }
  return out;
}

Status Args::set(const ArgFlag& flag, const config::Option& option, const std::string& value) {
  RETURN_IF_ERROR(check_value(flag, option, value));
  const std::string name(config::first_flag(option));
  const bool is_default = value == flag.fallback;
  if (flag.use == config::Use::kOnly && !is_default)
    return unsupported("{}: '{}' is not supported yet; allowed: {}", name, value.substr(0, 80),
                       *flag.fallback ? flag.fallback : "leave it out");
  const bool acts = flag.use == config::Use::kActed || flag.use == config::Use::kOnly;
  if (!acts && !is_default && std::ranges::find(ignored_, name) == ignored_.end())
    ignored_.push_back(name);
  given_[name] = value;
  return ok();
}

StatusOr<Args> Args::parse(const ArgTable& table, const std::vector<std::string>& words) {
  Args args;
  const config::Options flags = options_of(table.flags, &args);
  for (const config::Option& flag : flags)
    args.defaults_[std::string(config::first_flag(flag))] = flag.default_text;
  const std::vector<std::string> needed = config::split(table.words, ' ');
  bool only_words = false;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    if (only_words || !is_flag(word)) {
      if (args.words_.size() == needed.size()) {
        return invalid_argument("unrecognized arguments: {}", word.substr(0, 80));
      }
      args.words_.push_back(std::move(word));
      continue;
    }
    if (word == "--") {
      only_words = true;
      continue;
    }
    if (word == "-h" || word == "--help") {
      args.wants_help_ = true;
      return args;
    }
    std::optional<std::string> value;
    if (const size_t equals = word.find('='); equals != word.npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    ASSIGN_OR_RETURN(const config::Option* flag, find_flag(flags, word));
    const std::string_view name = config::first_flag(*flag);
    const bool takes_value = *flag->value_name != '\0';
    if (value && !takes_value)
      return invalid_argument("argument {}: ignored explicit argument '{}'", name,
                              value->substr(0, 80));
    const auto next_is_value = [&] { return i + 1 < words.size() && !is_flag(words[i + 1]); };
    if (!value && takes_value && next_is_value()) {
      value = words[++i];
      while (flag->is_list && next_is_value()) *value += " " + words[++i];
    }
    if (!value && flag->alone.empty())
      return invalid_argument("argument {}: expected one argument", name);
    RETURN_IF_ERROR(config::parse(*flag, value ? *value : flag->alone));
  }
  if (args.words_.size() < needed.size()) {
    return invalid_argument(
        "the following arguments are required: {}",
        fmt::join(needed.begin() + static_cast<ptrdiff_t>(args.words_.size()), needed.end(), ", "));
  }
  return args;
}

const std::string& Args::text(std::string_view name) const {
  if (const auto it = given_.find(name); it != given_.end()) return it->second;
  const auto it = defaults_.find(name);
  NEREID_CHECK(it != defaults_.end());
  return it->second;
}

int64_t Args::integer(std::string_view name) const {
  return to_number<int64_t>(text(name)).value_or(0);
}

double Args::number(std::string_view name) const {
  return to_number<double>(text(name)).value_or(0);
}

namespace {

HelpWriter& help_writer() {
  static HelpWriter writer;
  return writer;
}

std::string usage_line(const ArgTable& table) {
  return fmt::format("usage: {} [-h] [--flag value ...]{}{}\n", table.program,
                     table.words.empty() ? "" : " ", table.words);
}

}  // namespace

std::string value_text(const config::Option& option) {
  if (!*option.value_name || !*option.words) return option.value_name;
  return fmt::format("{{{}}}", fmt::join(config::words_of(option), ","));
}

std::string sentence_of(const config::Option& option) {
  const std::string fallback = config::default_of(option, {}, &config::Option::name);
  return fmt::format("{}{}{}{}{}", option.is_deprecated ? "deprecated: " : "", option.help,
                     note_of(option.use), fallback.empty() ? "" : "; default ", fallback);
}

std::string log_level_of(const std::string& level) {
  if (level == "warning") return "warn";
  if (level == "internal_error") return "error";
  return level == "verbose" || level == "trace" ? "debug" : level;
}

namespace {

// The column below which the rest of a line stands.
size_t hanging_indent(std::string_view line, size_t width) {
  constexpr size_t kMostOfNames = 8;  // leading blanks; with more, the line is a description
  const size_t begin = line.find_first_not_of(' ');
  if (begin >= kMostOfNames) return begin;
  const size_t gap = line.find("  ", begin);
  const size_t text = gap == line.npos ? gap : line.find_first_not_of(' ', gap);
  return text != line.npos && text <= width / 2 ? text : begin;
}

// Where a line that is too long ends: before a blank, or behind a comma of a list of words.
size_t line_end(std::string_view line, size_t indent, size_t width) {
  const size_t blank = line.rfind(' ', width);
  if (blank != line.npos && blank > indent) return blank;
  const size_t comma = line.rfind(',', width - 1);
  if (comma != line.npos && comma > indent) return comma + 1;
  return std::min(line.find(' ', width), line.size());
}

}  // namespace

std::string wrapped(std::string_view text, size_t width) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    if (line.find_first_not_of(' ') == line.npos) line.clear();
    const size_t indent = line.empty() ? 0 : hanging_indent(line, width);
    while (line.size() > width) {
      const size_t cut = line_end(line, indent, width);
      const size_t rest = line.find_first_not_of(' ', cut);
      if (rest == line.npos) break;
      out.append(line, 0, line.find_last_not_of(' ', cut - 1) + 1) += '\n';
      line = std::string(indent, ' ') + line.substr(rest);
    }
    out += line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

void set_help_writer(HelpWriter writer) { help_writer() = std::move(writer); }

std::string help_text(const ArgTable& table) {
  if (help_writer()) return help_writer()(table);
  std::string text = usage_line(table) + "\n";
  for (const config::Option& flag : options_of(table.flags)) {
    const std::string value = value_text(flag);
    text += fmt::format("  {}{}{}\n        {}\n", fmt::join(names_of(flag), ", "),
                        value.empty() ? "" : " ", value, sentence_of(flag));
  }
  return wrapped(text);
}

int run_tool(const ArgTable& table, int argc, char** argv,
             const std::function<Status(const Args&)>& run) {
  const StatusOr<Args> args = Args::parse(table, {argv + std::min(argc, 1), argv + argc});
  if (!args.ok()) {
    fmt::print(stderr, "{}{}: error: {}\n", usage_line(table), table.program,
               message(args.status()));
    return absl::IsUnimplemented(args.status()) ? 1 : 2;
  }
  if (args->wants_help()) {
    fmt::print("{}", help_text(table));
    return 0;
  }
  const Status status = run(*args);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}: error: {}\n", table.program, message(status));
  return 1;
}

void warn_of_ignored(const Args& args) {
  if (args.ignored().empty()) return;
  log_warn("these flags have no effect here: {}", fmt::join(args.ignored(), " "));
}

Status run_timed(const Args& args, std::string_view total, Status (*run)(const Args&)) {
  fmt::print("nereid version: {}\n", NEREID_VERSION);
  RETURN_IF_ERROR(set_log_level(log_level_of(args.text("--log_level"))));
  warn_of_ignored(args);
  const auto start = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(run(args));
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start)
          .count();
  fmt::print("{}: {:02}:{:02}:{:02}\n", total, seconds / 3600, seconds / 60 % 60, seconds % 60);
  return ok();
}

}  // namespace nereid::cli
