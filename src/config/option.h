// The declaration of an option: name, value, what is allowed, help, and where it is offered.
// Command lines, environment, the C API's JSON, parameters of config.pbtxt, --print-config and
// docs/options.md are made of lists of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::config {

// An enum with a word for each value.
struct WordField {
  void* value;
  size_t (*get)(const void* value);
  void (*set)(void* value, size_t index);
};

struct Option;
// Takes a value as it was typed, each time that the option is given.
using Action = std::function<Status(const Option& option, const std::string& text)>;

// Where the value of an option lies. It is not owned.
using Field = std::variant<bool*, int32_t*, int64_t*, uint64_t*, float*, double*, std::string*,
                           std::filesystem::path*, std::optional<int64_t>*, std::optional<double>*,
                           std::vector<std::string>*, WordField, Action>;

template <class T>
Field field(T& value) {
  if constexpr (std::is_enum_v<T>) {
    return WordField{&value, [](const void* from) { return size_t(*static_cast<const T*>(from)); },
                     [](void* to, size_t index) { *static_cast<T*>(to) = static_cast<T>(index); }};
  } else {
    return &value;
  }
}

// The effect of a flag that other programs have.
enum class Use : uint8_t {
  kActed,    // has its effect
  kNoted,    // stored in the output's config.json, no effect here
  kIgnored,  // no effect: concerns speed or internals of other engines
  kOnly,     // only the default is supported; other values are refused by name
};

// Allowed numbers: [low, high] unless an end is open.
struct Range {
  double low = std::numeric_limits<double>::lowest(), high = std::numeric_limits<double>::max();
  bool is_open_below = false, is_open_above = false;
};

struct Option {
  const char* name;  // in errors and in the C API's JSON, "kv_cache.type" is `type` of `kv_cache`
  Field field;       // its value when the list is made is the default
  // `x` in it is the option with that name. One or more sentences without a capital and a stop.
  const char* help;
  Range range = {};
  // Allowed words, separated by '|'. An enum has one for each value. A string may be empty, too.
  const char* words = "";
  // Flags, separated by commas, the first one in messages. "--no-x" of a bool sets it to false.
  // In add_group() "" stands for the name with dashes, null for none.
  const char* flag = "";
  // Key in config.pbtxt of the tensorrt_llm model; of the engine's options as `flag`.
  const char* parameter = "";
  // Placeholder in config.pbtxt's template; "" = the name of the parameter.
  const char* placeholder = "";
  // Text for a default whose value does not explain itself ("one per physical core").
  const char* default_text = "";
  bool zero_is_default = false;  // flags and parameters: 0 leaves the default
  bool is_bytes = false;         // flags take 512M and 4G
  bool must_exist = false;       // a path
  bool flag_takes_any = false;   // a wrong word is refused where the model is loaded
  bool is_secret = false;        // not printed
  bool has_own_reader = false;   // the parameter is a text that the backend reads itself
  bool has_environment = true;   // the first flag is also NEREID_<NAME>
  bool is_deprecated = false;    // `help` is the flag that replaces it
  // The error in a flag's value, "" = none.
  std::string (*problem)(const std::string& value) = nullptr;
  const char* group = "";
  // The value in --help of programs that do not use CLI11, "" = it takes none.
  const char* value_name = "";
  std::string alone;     // the value of the flag alone; empty: it needs one
  bool is_list = false;  // takes all words up to the next flag
  Use use = Use::kActed;
};

using Options = std::vector<Option>;

// Appends `list`, all of one group, and makes flags of names.
void add_group(Options& options, const char* group, std::initializer_list<Option> list);

const Option* find(const Options& options, std::string_view name);

// `text`, kept until the program ends; equal texts are kept once. For any thread.
const char* keep(const std::string& text);

// The parts that are not empty.
std::vector<std::string> split(std::string_view text, char separator);

// "a|b" -> {"a", "b"}
std::vector<std::string> words_of(const Option& option);

// true, 1, t, y, yes, on / false, 0, f, n, no, off; in any case.
std::optional<bool> parse_bool(std::string_view text);

// Sets the value. InvalidArgument: "expected an integer from 0 to 8"; the value is unchanged then.
Status parse(const Option& option, std::string_view text);

// The value as text for parse(): "" if it is unset, or 0 where 0 is the default.
std::string text_of(const Option& option);

// InvalidArgument: "max_batch_size: 0 is not in [1, 4096]".
Status check(const Option& option);
Status check(const Options& options);

// As the C API reads it.
json::object to_json(const Options& options);

// The first flag without its dashes in capitals, behind NEREID_; "" = none.
std::string environment_of(const Option& option);

// The first of `option.flag`.
std::string_view first_flag(const Option& option);

// `text` with each `name` replaced by what that option is called in `place` (&Option::flag: its
// first flag), where it has such a name.
std::string refer(std::string_view text, const Options& all, const char* Option::*place);

// The default for people: its value, or what it stands for; "" = none.
std::string default_of(const Option& option, const Options& all, const char* Option::*place);

}  // namespace nereid::config
