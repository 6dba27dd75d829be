// Tool calls written as Python's calls with literals.
#include <string>

#include "base/blanks.h"
#include "base/json.h"
#include "front/output/tool_json.h"

namespace nereid::front {
namespace {

constexpr int kMaxNesting = 50;

// Reads literals of Python's grammar (reference, "Literals"): numbers, strings without prefixes,
// True, False, None, lists, tuples, dictionaries with texts as keys.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  ToolCalls calls() {
    std::vector<ToolCall> calls;
    if (!take('[')) return std::nullopt;
    while (!take(']')) {
      ToolCall call{name(), ""};
      json::object arguments;
      if (call.name.empty() || !take('(')) return std::nullopt;
      while (!take(')')) {
        const std::string key = name();
        if (key.empty() || !take('=')) return std::nullopt;
        std::optional<json::value> value = literal(0);
        if (!value) return std::nullopt;
        arguments[key] = *std::move(value);
        if (!take(',') && peek() != ')') return std::nullopt;
      }
      call.arguments = object_text(arguments);
      calls.push_back(std::move(call));
      if (!take(',') && peek() != ']') return std::nullopt;
    }
    if (peek() != 0 || calls.empty()) return std::nullopt;
    return calls;
  }

 private:
  // The next character that is not blank; 0 at the end.
  char peek() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != kBlanks.npos) ++at_;
    return at_ < text_.size() ? text_[at_] : 0;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  }
  std::string name() {
    peek();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::optional<json::value> literal(int depth) {
    if (depth > kMaxNesting) return std::nullopt;
    const char c = peek();
    if (c == '"' || c == '\'') return string();
    if (take('[')) return list(']', depth);
    if (take('(')) return list(')', depth);
    if (take('{')) return dictionary(depth);
    const size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '+')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True") return json::value(true);
    if (word == "False") return json::value(false);
    if (word == "None") return json::value(nullptr);
    const StatusOr<json::value> number = parse_json(word, 1);
    if (!number.ok() || !number->is_number()) return std::nullopt;
    return *number;
  }
  std::optional<json::value> list(char close, int depth) {
    json::array out;
    while (!take(close)) {
      std::optional<json::value> item = literal(depth + 1);
      if (!item) return std::nullopt;
      out.push_back(*std::move(item));
      if (!take(',') && peek() != close) return std::nullopt;
    }
    return out;
  }
  std::optional<json::value> dictionary(int depth) {
    json::object out;
    while (!take('}')) {
      const std::optional<json::value> key = literal(depth + 1);
      if (!key || !key->is_string() || !take(':')) return std::nullopt;
      std::optional<json::value> value = literal(depth + 1);
      if (!value) return std::nullopt;
      out[key->get_string()] = *std::move(value);
      if (!take(',') && peek() != '}') return std::nullopt;
    }
    return out;
  }
  std::optional<json::value> string() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        constexpr std::string_view kNames = "ntr0", kMeant("\n\t\r\0", 4);
        c = text_[at_++];
        if (const size_t i = kNames.find(c); i != kNames.npos)
          c = kMeant[i];
        else if (c != '\\' && c != '\'' && c != '"')
          out += '\\';
      }
      out += c;
    }
    if (at_ == text_.size()) return std::nullopt;
    ++at_;
    return json::value(out);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

ToolCalls read_pythonic(std::string_view text, const json::array*) {
  return PythonReader(text).calls();
}

}  // namespace nereid::front
