// Command lines of the tools that people's scripts call with Python argparse's rules: a table of
// flags gives parsing, defaults, help, and what becomes of flags that have no meaning here.
//
// Rules: `--flag value` and `--flag=value`; `-` and `_` in names are the same; an unambiguous
// beginning of a name is enough; a repeated flag's last value counts; flags may stand anywhere
// between the tool's own words, and `--` ends them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

enum class ArgKind : uint8_t {
  kFlag,     // present or absent
  kText,     // any word
  kInteger,  // 64 bits
  kNumber,   // finite
  kChoice,   // one of `choices`
  kFeature,  // enable | disable; alone it means enable
  kMaybe,    // one of `choices` (or any word), or alone, which means the first (or enable)
  kList,     // one or more words
};

enum class ArgUse : uint8_t {
  kActed,  // the tool does it
  // Given ones of these two are named in one warning.
  kNoted,    // stored in the output's config.json, changes nothing here
  kIgnored,  // speed or plumbing of other engines
  kOnly,     // only the default works so far; other values are refused by name
};

struct ArgFlag {
  const char* names;  // separated by blanks; the first one is shown and looked up
  ArgKind kind;
  ArgUse use;
  const char* choices;   // separated by blanks; "" = not a choice
  const char* fallback;  // as typed; "" = none, flags: off
  const char* help;
};

// What a tool is called with.
struct ArgTable {
  std::string_view program;  // as messages show it
  std::span<const ArgFlag> flags;
  std::string_view words =
      "";  // names of the words that it needs beside flags, with blanks between
};

// Values by the flag's first name, dashes included.
class Args {
 public:
  // InvalidArgument in argparse's words ("argument --x: invalid choice: 'y' (choose from 'a')");
  // Unimplemented for a value that only comes later, naming flag, value and what is allowed.
  static StatusOr<Args> parse(const ArgTable& table, const std::vector<std::string>& words);

  bool given(std::string_view name) const { return given_.contains(name); }
  bool is_on(std::string_view name) const { return text(name) == "enable"; }  // flags, features
  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  // Given flags whose use is kNoted or kIgnored.
  const std::vector<std::string>& ignored() const { return ignored_; }
  bool wants_help() const { return wants_help_; }
  // As many as the table names.
  const std::vector<std::string>& words() const { return words_; }

 private:
  Status set(const ArgFlag& flag, std::string value);

  std::map<std::string, std::string, std::less<>> given_, defaults_;
  std::vector<std::string> ignored_, words_;
  bool wants_help_ = false;
};

// "usage: ..." and a line for each flag.
std::string help_text(const ArgTable& table);

// A whole tool: parses, answers --help, runs. Returns the exit code: 2 with a usage line for a
// wrong command line, 1 when it asks for what only comes later or when `run` fails.
int run_tool(const ArgTable& table, int argc, char** argv,
             const std::function<Status(const Args&)>& run);

// Says which given flags have no effect.
void warn_of_ignored(const Args& args);

// For tools that take their time: sets the log level (--log_level), prints version, warnings and
// the time that `run` took as "<total>: HH:MM:SS".
Status run_timed(const Args& args, std::string_view total, Status (*run)(const Args&));

}  // namespace nereid::cli
