#include "cli/flags/arg_table.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "base/nearest.h"

namespace nereid::cli {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

std::string first_name(const ArgFlag& flag) { return split(flag.names).front(); }

std::string canonical(std::string name) {
  std::replace(name.begin() + static_cast<ptrdiff_t>(std::min<size_t>(2, name.size())), name.end(),
               '-', '_');
  return name;
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

StatusOr<const ArgFlag*> find_flag(std::span<const ArgFlag> table, const std::string& word) {
  const std::string wanted = canonical(word);
  std::vector<const ArgFlag*> found;
  std::vector<std::string> names;
  for (const ArgFlag& flag : table)
    for (const std::string& name : split(flag.names)) {
      if (canonical(name) == wanted) return &flag;
      if (!wanted.starts_with("--") || !canonical(name).starts_with(wanted)) continue;
      if (found.empty() || found.back() != &flag) found.push_back(&flag);
      names.push_back(name);
    }
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    std::set<std::string> known;
    for (const ArgFlag& flag : table)
      for (std::string& name : split(flag.names)) known.insert(std::move(name));
    return invalid_argument("unrecognized arguments: {}{}", word.substr(0, 80),
                            did_you_mean(wanted.substr(0, 80), known));
  }
  return invalid_argument("ambiguous option: {} could match {}", word, fmt::join(names, ", "));
}

bool takes_value(const ArgFlag& flag) { return flag.kind != ArgKind::kFlag; }
bool may_stand_alone(const ArgFlag& flag) {
  return flag.kind == ArgKind::kFlag || flag.kind == ArgKind::kFeature ||
         flag.kind == ArgKind::kMaybe;
}

std::string alone_value(const ArgFlag& flag) {
  return *flag.choices ? split(flag.choices).front() : "enable";
}

Status check_value(const ArgFlag& flag, const std::string& value) {
  const std::string name = first_name(flag);
  const std::string shown = value.substr(0, 80);
  if (flag.kind == ArgKind::kInteger && !to_number<int64_t>(value))
    return invalid_argument("argument {}: invalid int value: '{}'", name, shown);
  if (flag.kind == ArgKind::kNumber) {
    const std::optional<double> number = to_number<double>(value);
    if (!number || !std::isfinite(*number))
      return invalid_argument("argument {}: invalid float value: '{}'", name, shown);
  }
  const char* choices = flag.kind == ArgKind::kFeature ? "enable disable" : flag.choices;
  const std::vector<std::string> allowed = split(choices);
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end())
    return ok();
  return invalid_argument("argument {}: invalid choice: '{}' (choose from '{}')", name, shown,
                          fmt::join(allowed, "', '"));
}

const char* note_of(ArgUse use) {
  switch (use) {
    case ArgUse::kActed:
      return "";
    case ArgUse::kNoted:
      return " (recorded only)";
    case ArgUse::kIgnored:
      return " (accepted, has no effect)";
    case ArgUse::kOnly:
      return " (only the default works so far)";
  }
  return "";
}

}  // namespace

Status Args::set(const ArgFlag& flag, std::string value) {
  RETURN_IF_ERROR(check_value(flag, value));
  const std::string name = first_name(flag);
  const bool is_default = value == flag.fallback;
  if (flag.use == ArgUse::kOnly && !is_default)
    return unsupported("{}: '{}' is not supported yet; allowed: {}", name, value.substr(0, 80),
                       *flag.fallback ? flag.fallback : "leave it out");
  const bool acts = flag.use == ArgUse::kActed || flag.use == ArgUse::kOnly;
  if (!acts && !is_default && std::ranges::find(ignored_, name) == ignored_.end())
    ignored_.push_back(name);
  given_[name] = std::move(value);
  return ok();
}

StatusOr<Args> Args::parse(const ArgTable& table, const std::vector<std::string>& words) {
  Args args;
  for (const ArgFlag& flag : table.flags) args.defaults_[first_name(flag)] = flag.fallback;
  const std::vector<std::string> needed = split(table.words);
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
    ASSIGN_OR_RETURN(const ArgFlag* flag, find_flag(table.flags, word));
    if (value && !takes_value(*flag))
      return invalid_argument("argument {}: ignored explicit argument '{}'", first_name(*flag),
                              value->substr(0, 80));
    const auto next_is_value = [&] { return i + 1 < words.size() && !is_flag(words[i + 1]); };
    if (!value && takes_value(*flag) && next_is_value()) {
      value = words[++i];
      while (flag->kind == ArgKind::kList && next_is_value()) *value += " " + words[++i];
    }
    if (!value && !may_stand_alone(*flag))
      return invalid_argument("argument {}: expected one argument", first_name(*flag));
    RETURN_IF_ERROR(args.set(*flag, value ? *std::move(value) : alone_value(*flag)));
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

std::string value_text(const ArgFlag& flag) {
  if (flag.kind == ArgKind::kFlag) return "";
  if (flag.kind == ArgKind::kFeature) return "{enable,disable}";
  if (*flag.choices) return fmt::format("{{{}}}", fmt::join(split(flag.choices), ","));
  switch (flag.kind) {
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

std::string sentence_of(const ArgFlag& flag) {
  const std::string text = fmt::format("{}{}", flag.help, note_of(flag.use));
  return *flag.fallback ? fmt::format("{}; default {}", text, flag.fallback) : text;
}

void set_help_writer(HelpWriter writer) { help_writer() = std::move(writer); }

std::string help_text(const ArgTable& table) {
  if (help_writer()) return help_writer()(table);
  std::string text = usage_line(table) + "\n";
  for (const ArgFlag& flag : table.flags) {
    const std::string value = value_text(flag);
    text += fmt::format("  {}{}{}\n        {}\n", fmt::join(split(flag.names), ", "),
                        value.empty() ? "" : " ", value, sentence_of(flag));
  }
  return text;
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
  const std::string& level = args.text("--log_level");
  const bool is_detail = level == "verbose" || level == "trace";
  RETURN_IF_ERROR(set_log_level(level == "warning"          ? "warn"
                                : level == "internal_error" ? "error"
                                : is_detail                 ? "debug"
                                                            : level));
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
