// A config.pbtxt read for checking, with protobuf's parser: everything that can be understood, with
// its place, and a problem of each top-level field instead of the first one alone.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::cli {

// One thing that is wrong.
struct Problem {
  std::string file;
  int line = 0;  // 0: of the file as a whole
  std::string field;
  std::string text;
};

// A field that was given: a scalar or a message.
struct TextField {
  std::string name;
  int line = 0;       // 0: of a message that is not understood to its end, which has been reported
  std::string value;  // of a scalar
  std::vector<TextField> fields;

  const TextField* find(std::string_view field) const;  // the first of that name
  std::vector<const TextField*> all(std::string_view field) const;
  // The scalar `field`, or "" when absent.
  std::string text(std::string_view field) const;
};

using Report = std::function<void(int line, const std::string& field, const std::string& text)>;

// The ModelConfig that `text` is. Placeholders that were not filled in have the values that the
// server takes for them (base/placeholders.h).
TextField read_text_config(std::string_view text, const Report& report);

}  // namespace nereid::cli
