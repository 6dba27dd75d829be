// Literals of JSON and Python as models write them, made into valid JSON. Internal to front/output.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nereid::front {

// The members of a JSON object; of two with one key the later counts.
class JsonMembers {
 public:
  void add(std::string key, std::string value);  // of JSON text
  bool empty() const { return members_.empty(); }
  bool contains(const std::string& key) const { return places_.contains(key); }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::unordered_map<std::string, size_t> places_;
};

// Reads a text from its beginning. Beyond JSON: quotes of either kind, line breaks in strings,
// commas behind the last item, True, False, None, tuples. Numbers that JSON has not (007, NaN) and
// those beyond the range of a double become strings; all digits of others are kept.
class LiteralReader {
 public:
  enum class Syntax { kJson, kPython };  // tells what a backslash and three quotes mean
  explicit LiteralReader(std::string_view text, Syntax syntax = Syntax::kJson)
      : text_(text), syntax_(syntax) {}

  char peek();  // the next character that is not blank, 0 at the end
  bool take(char c);
  bool take(std::string_view mark);
  std::string name();  // letters, digits, '_', '.', '-'; may be empty
  std::optional<std::string> string();
  // As JSON text.
  std::optional<std::string> literal(size_t depth = 0);
  // Arguments of a call, as JSON text: an object, a text that is one, null or an empty list.
  std::optional<std::string> arguments();

  size_t at() const { return at_; }
  std::string_view rest() const { return text_.substr(at_); }
  // Whether it has met the end of the text: what failed may succeed with more.
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

// All of `text`, which is one literal and blanks, as JSON text.
std::optional<std::string> json_of(std::string_view text);
// The same of an object; an empty text is an object without members.
std::optional<std::string> object_of(std::string_view text);
std::string json_string(std::string_view text);

}  // namespace nereid::front
