// A config.pbtxt parsed for checking, with protobuf's parser: every field that parses, with its
// position, and one problem for each faulty top-level field.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::cli {

// A fault in a configuration.
struct Problem {
  std::string file;
  int line = 0;  // 0: the whole file
  std::string field;
  std::string text;
};

// A field that is set: a scalar or a message.
struct TextField {
  std::string name;
  int line = 0;       // 0: inside a message with a syntax error, which was reported
  std::string value;  // of a scalar
  std::vector<TextField> fields;

  const TextField* find(std::string_view field) const;  // the first of that name
  std::vector<const TextField*> all(std::string_view field) const;
  // The scalar `field`, or "" when absent.
  std::string text(std::string_view field) const;
};

using Report = std::function<void(int line, const std::string& field, const std::string& text)>;

// Parses `text` as a ModelConfig. Unfilled placeholders have the values that the
// server uses (base/placeholders.h).
TextField read_text_config(std::string_view text, const Report& report);

}  // namespace nereid::cli
