// Literals of JSON and Python as models write them, converted to valid JSON.
// Internal to front/output.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nereid::front {

// The members of a JSON object; of duplicates the last one counts.
class JsonMembers {
 public:
  void add(std::string key, std::string value);  // JSON text
  bool empty() const { return members_.empty(); }
  bool contains(const std::string& key) const { return places_.contains(key); }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::unordered_map<std::string, size_t> places_;
};

// Reads a text from its beginning. Beyond JSON it accepts: quotes of either kind, line breaks in
// strings, trailing commas, True, False, None, tuples. Numbers invalid in JSON (007, NaN) and those
// beyond the range of a double become strings; others keep all digits.
class LiteralReader {
 public:
  enum class Syntax { kJson, kPython };  // meaning of a backslash and of three quotes
  explicit LiteralReader(std::string_view text, Syntax syntax = Syntax::kJson)
      : text_(text), syntax_(syntax) {}

  char peek();  // the next non-blank character, 0 at the end
  bool take(char c);
  bool take(std::string_view mark);
  std::string name();  // letters, digits, '_', '.', '-'; may be empty
  std::optional<std::string> string();
  // As JSON text.
  std::optional<std::string> literal(size_t depth = 0);
  // Arguments of a call, as JSON text: an object, a string that contains one,
  // null or an empty list.
  std::optional<std::string> arguments();

  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  // Whether the end of the text was reached: a failure may succeed with more text.
  bool ran_out() const { return ran_out_; }

 private:
  std::optional<std::string> list(char close, size_t depth);
  std::optional<std::string> dictionary(size_t depth);
  std::optional<std::string> word();
  bool escape(std::string& out);
  std::optional<unsigned> hex(size_t num_digits);

  std::string_view text_;
  Syntax syntax_;
  size_t at_ = 0;
  bool ran_out_ = false;
};

// All of `text`, a literal and blanks, as JSON text.
std::optional<std::string> json_of(std::string_view text);
// json_of() for an object; an empty text is an empty object.
std::optional<std::string> object_of(std::string_view text);
std::string json_string(std::string_view text);

}  // namespace nereid::front
