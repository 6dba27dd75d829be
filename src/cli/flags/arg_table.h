// Command lines of the replaced tools, by the rules of Python's argparse: a table of flags
// determines parsing, defaults, help, and the treatment of flags without effect here.
//
// Rules: `--flag value` and `--flag=value`; `-` and `_` in names are equal; an unambiguous prefix
// of a name suffices; the last value of a repeated flag counts; flags may stand anywhere between
// positional words, and `--` ends them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/option.h"

namespace nereid::cli {

enum class ArgKind : uint8_t {
  kFlag,     // present or absent
  kText,     // any word
  kInteger,  // 64 bits
  kNumber,   // finite
  kChoice,   // one of `choices`
  kFeature,  // enable | disable; without a value: enable
  kMaybe,    // one of `choices` (or any word); without a value: the first choice (or enable)
  kList,     // one or more words
};

// A config::Option in short. Names are separated by commas, the first one is printed and looked up;
// choices by bars, "" = any word.
struct ArgFlag {
  const char* names;
  ArgKind kind;
  config::Use use;
  const char* choices;
  const char* fallback;  // default as typed; "" = none, for flags off
  const char* help;
  const char* passed_as = "";  // flag of `nereid serve` that gets the value
  config::Range range = {};    // of kInteger and kNumber
};

constexpr config::Range in(double low, double high) { return {low, high}; }

// The command line of a tool.
struct ArgTable {
  std::string_view program;  // for messages
  std::span<const ArgFlag> flags;
  std::string_view words = "";  // names of the positional words, separated by blanks
};

// Values by the flag's first name, dashes included.
class Args {
 public:
  // InvalidArgument in argparse's words ("argument --x: invalid choice: 'y' (choose from 'a')");
  // Unimplemented, naming flag, value and what is allowed, for an unsupported value.
  static StatusOr<Args> parse(const ArgTable& table, const std::vector<std::string>& words);

  bool given(std::string_view name) const { return given_.contains(name); }
  // For kFlag and kFeature.
  bool is_on(std::string_view name) const { return text(name) == "enable"; }
  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  // Given flags that are kNoted or kIgnored.
  const std::vector<std::string>& ignored() const { return ignored_; }
  bool wants_help() const { return wants_help_; }
  // The positional words, as many as the table has.
  const std::vector<std::string>& words() const { return words_; }

 private:
  friend config::Options options_of(std::span<const ArgFlag> flags, Args* args);
  Status set(const ArgFlag& flag, const config::Option& option, const std::string& value);

  std::map<std::string, std::string, std::less<>> given_, defaults_;
  std::vector<std::string> ignored_, words_;
  bool wants_help_ = false;
};

// The declarations, which keep their values in `args`.
config::Options options_of(std::span<const ArgFlag> flags, Args* args = nullptr);

// The option of that name, or of the only one that begins so; else `candidates` are the names that
// begin so. `same_dash`: - and _ in names are equal.
struct FoundOption {
  const config::Option* option = nullptr;
  std::vector<std::string> candidates;
};
FoundOption find_option(const config::Options& options, std::string_view name, bool same_dash);
// ". Did you mean 'x'?", or "".
std::string nearest_option(const config::Options& options, std::string_view name);

// A text of --help with lines of at most `width` characters where words allow it. The rest of a
// line is indented as the line's last column, which two blanks precede, or as the line.
inline constexpr size_t kHelpWidth = 80;
std::string wrapped(std::string_view text, size_t width = kHelpWidth);

// "usage: ..." and lines for each flag, wrapped.
std::string help_text(const ArgTable& table);

// Later calls of help_text() return what `writer` makes of the table: man pages and completions are
// made of each tool's --help. Null: the plain text. Not for several threads.
using HelpWriter = std::function<std::string(const ArgTable&)>;
void set_help_writer(HelpWriter writer);

// Parts of a flag's help: "N", "{a,b}" or "" without a value; its sentence, note and default.
std::string value_text(const config::Option& option);
std::string sentence_of(const config::Option& option);

// nereid's level for one of TensorRT-LLM's.
std::string log_level_of(const std::string& level);

// Runs a tool: parses, prints the help for --help, or calls `run`. Exit code: 0; 2 with a usage
// line for a wrong command line; 1 for an unsupported value or when `run` fails.
int run_tool(const ArgTable& table, int argc, char** argv,
             const std::function<Status(const Args&)>& run);

// Logs the given flags that have no effect.
void warn_of_ignored(const Args& args);

// Runs a tool that takes long: sets the log level (--log_level), prints version, warnings and the
// time of `run` as "<total>: HH:MM:SS".
Status run_timed(const Args& args, std::string_view total, Status (*run)(const Args&));

}  // namespace nereid::cli
