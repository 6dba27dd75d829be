// See options_page.h.
#include "cli/flags/options_page.h"

#include <set>
#include <string_view>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "backend/parameters/parameters.h"
#include "cli/commands/serve_options.h"
#include "config/engine_options.h"

namespace nereid::cli {
namespace {

using config::Option;
using config::Options;

constexpr std::string_view kIntroduction = R"(# Options

`nereid options` prints this page from the declarations in `src/config` and `src/cli/commands/serve_options.cc`.

- Flags are those of the commands that load a model: `nereid serve`, `generate`, `bench`, `inspect`, `perplexity`.
  `--help` shows them in the same groups; `--print-config` prints the values in effect as JSON and exits.
- Environment: `NEREID_` and the flag's name in capitals: `NEREID_MAX_BATCH_SIZE=8` is `--max-batch-size 8`. A flag on the
  command line counts more. Switches take `true` or `false`. (`NEREID_CACHE_DIR` is no such variable, but the default of
  `--cache-dir`.)
- `nereid serve` reads a file of options, too (docs/commands.md): its keys are the flags' names.
- Parameters are those of `config.pbtxt` of the model `tensorrt_llm`, for `tritonserver`.
- The first column is the name in the C API's JSON: `kv_cache.type` is `{"kv_cache": {"type": ...}}`.
- In brackets: the default of flags. `batch_scheduler_policy` has the default guaranteed_no_evict; the defaults of the C API
  are in `include/nereid/config.h`. Flags for bytes take `512M` and `4G`, too.
)";

// In a cell of a table, where | would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) c == '|' ? out.append("\\|") : out.append(1, c);
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string flags_of(const Option& option) {
  std::string out;
  for (std::string_view left = option.flag; !left.empty();) {
    const size_t end = std::min(left.find(','), left.size());
    out += (out.empty() ? "" : ", ") + code(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return out;
}

template <class Number>
std::string number_range(const Option& option) {
  const config::Range& range = option.range;
  if (*option.words) return cell(option.words);
  const auto text = [](double value) {
    return std::is_integral_v<Number> ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
  };
  std::string low = fmt::format("{}{}", range.is_open_below ? "above " : "", text(range.low));
  // 0, the default, stands beside the range or at its border.
  const bool touches = range.low == 0 || (std::is_integral_v<Number> && range.low == 1);
  if (option.zero_is_default) low = touches ? "0" : "0, " + low;
  return fmt::format("{} to {}{}", low, range.is_open_above ? "below " : "", text(range.high));
}

std::string allowed_values(const Option& option) {
  return std::visit(
      [&](const auto& field) -> std::string {
        using T = std::decay_t<decltype(field)>;
        if constexpr (std::is_same_v<T, config::Action>) {
          return "text";
        } else if constexpr (!std::is_pointer_v<T>) {
          return "word";
        } else {
          using Value = std::remove_pointer_t<T>;
          if constexpr (std::is_same_v<Value, bool>) return "true, false";
          if constexpr (std::is_same_v<Value, std::filesystem::path>) return "path";
          if constexpr (std::is_same_v<Value, std::string>) return *option.words ? "word" : "text";
          if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "list";
          if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>)
            return number_range<Value>(option);
          if constexpr (std::is_same_v<Value, std::optional<int64_t>>)
            return number_range<int64_t>(option);
          if constexpr (std::is_same_v<Value, std::optional<double>>)
            return number_range<double>(option);
          return "";
        }
      },
      option.field);
}

std::string row_of(const Option& option, const Options& all) {
  const std::string fallback = config::default_of(option, all, &Option::name);
  return fmt::format("| {} | {} | {} | {}{} | {} |\n", code(option.name), flags_of(option),
                     code(option.parameter), allowed_values(option),
                     fallback.empty() ? "" : fmt::format(" [{}]", cell(fallback)),
                     cell(option.help));
}

std::string flag_row(const Option& option, const Options& all) {
  const bool turns_off = std::string_view(option.flag).starts_with("--no-");
  const std::string fallback = turns_off ? "false" : config::default_of(option, all, &Option::flag);
  return fmt::format("| {} | {}{} | {}{} |\n", flags_of(option), allowed_values(option),
                     fallback.empty() ? "" : fmt::format(" [{}]", cell(fallback)),
                     turns_off ? "turns off: " : "",
                     cell(config::refer(option.help, all, &Option::flag)));
}

// Options that are flags of one command alone.
std::string flag_tables(const Options& options) {
  std::string out, group;
  for (const Option& option : options) {
    if (group != option.group)
      out += fmt::format("\n### {}\n\n| Flag | Values [default] | Meaning |\n|---|---|---|\n",
                         group = option.group);
    out += flag_row(option, options);
  }
  return out;
}

std::string tables_of(const Options& options) {
  std::string out;
  std::set<std::string_view> groups;
  for (const Option& first : options) {
    if (!groups.insert(first.group).second) continue;
    out += fmt::format(
        "\n## {}\n\n| Option | Flag | Parameter | Values [default] | Meaning |\n"
        "|---|---|---|---|---|\n",
        first.group);
    for (const Option& option : options)
      if (std::string_view(option.group) == first.group && option.use != config::Use::kOnly)
        out += row_of(option, options);
  }
  return out;
}

// Parameters of the tensorrt_llm model that are no options of the engine.
std::string other_parameters(const Options& options) {
  std::string out = "\n## Other parameters of config.pbtxt\n\n| Parameter | Meaning |\n|---|---|\n";
  std::set<std::string_view> keys;
  for (const Option& option : options) keys.insert(option.parameter);
  for (const backend::Parameter& p : backend::parameters_of("tensorrtllm")) {
    if (keys.contains(p.key)) continue;
    std::string text = p.help;
    if (p.use == backend::ParameterUse::kNone) text = fmt::format("no effect: {}", p.why_none);
    if (p.use == backend::ParameterUse::kRefused)
      text = *p.words ? fmt::format("refused, but for {}", p.words) : "refused";
    out += fmt::format("| {} | {} |\n", code(p.key), cell(text));
  }
  return out;
}

}  // namespace

std::string options_page() {
  ExecutorConfig config = config::served_defaults();
  const Options options = config::engine_options(config);
  ServeOptions server;
  return fmt::format("{}{}\n## nereid serve\n{}{}", kIntroduction, tables_of(options),
                     flag_tables(server_options(server)), other_parameters(options));
}

}  // namespace nereid::cli
