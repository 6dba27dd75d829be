#include "front/http/multipart.h"

#include <algorithm>
#include <utility>

#include "base/find_text.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxBoundary = 70;
constexpr size_t kMaxHeadBytes = 4096;
constexpr size_t kMaxNameBytes = 256;
constexpr std::string_view kFormType = "multipart/form-data";

char small_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b,
                            [](char x, char y) { return small_letter(x) == small_letter(y); });
}
std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// A header's value and its parameters, in order. nullopt: malformed.
struct Value {
  std::string_view value;
  std::vector<std::pair<std::string_view, std::string>> parameters;

  const std::string* find(std::string_view name) const {
    for (const auto& [key, text] : parameters)
      if (same_word(key, name)) return &text;
    return nullptr;
  }
};

// Removes a parameter's value from the front of `text`: a quoted string, in which a backslash
// escapes only a quote and itself (browsers leave others), or a token.
std::optional<std::string> take_value(std::string_view& text) {
  std::string out;
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(';'), text.size());
    out = trimmed(text.substr(0, end));
    text.remove_prefix(end);
    return out;
  }
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text = trimmed(text.substr(i + 1));
      return out;
    }
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
    out += text[i];
  }
  return std::nullopt;
}

std::optional<Value> parse_value(std::string_view text) {
  Value out;
  const size_t end = std::min(text.find(';'), text.size());
  out.value = trimmed(text.substr(0, end));
  text.remove_prefix(end);
  while (!text.empty()) {
    if (!text.starts_with(';')) return std::nullopt;
    text = trimmed(text.substr(1));
    if (text.empty()) break;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = trimmed(text.substr(0, equals));
    text = trimmed(text.substr(equals + 1));
    auto value = take_value(text);
    if (!value || key.empty() || out.find(key)) return std::nullopt;
    out.parameters.emplace_back(key, *std::move(value));
  }
  return out;
}

bool is_boundary(std::string_view text) {
  if (text.empty() || text.size() > kMaxBoundary || text.back() == ' ') return false;
  return std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("'()+_,-./:=? ").find(c) != std::string_view::npos;
  });
}

// Reads a part's header line into `part`.
Status read_line(std::string_view line, size_t number, FormPart& part, bool& has_name) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos)
    return invalid_argument("part {} of the form has a header without a colon", number);
  const std::string_view name = line.substr(0, colon), text = trimmed(line.substr(colon + 1));
  if (same_word(name, "Content-Type")) {
    part.content_type = text.substr(0, kMaxNameBytes);
    if (part.content_type.size() >= 10 && same_word(text.substr(0, 10), "multipart/"))
      return invalid_argument("part {} of the form is a form itself, which is not allowed", number);
  } else if (same_word(name, "Content-Transfer-Encoding")) {
    if (!same_word(text, "binary") && !same_word(text, "8bit") && !same_word(text, "7bit"))
      return invalid_argument(
          "part {} of the form has a Content-Transfer-Encoding; allowed are binary, 8bit and 7bit",
          number);
  } else if (same_word(name, "Content-Disposition")) {
    const auto value = parse_value(text);
    const std::string* const field = value ? value->find("name") : nullptr;
    if (has_name || !value || !same_word(value->value, "form-data") || field == nullptr)
      return invalid_argument(
          "part {} of the form needs one header Content-Disposition: form-data; name=\"...\"",
          number);
    if (field->empty() || field->size() > kMaxNameBytes || field->find('\0') != std::string::npos)
      return invalid_argument("part {} of the form has a name of {} bytes; allowed are 1 to {}",
                              number, field->size(), kMaxNameBytes);
    has_name = true;
    part.name = *field;
    if (const std::string* const file = value->find("filename"))
      part.file_name = file->substr(0, kMaxNameBytes);
  }
  return ok();
}

// Reads the headers in front of `rest`, and removes them.
Status read_head(std::string_view& rest, size_t number, FormPart& part) {
  bool has_name = false;
  const std::string_view head = rest.substr(0, kMaxHeadBytes);
  for (size_t at = 0;;) {
    const size_t end = head.find("\r\n", at);
    if (end == std::string_view::npos)
      return invalid_argument("part {} of the form has headers that do not end within {} bytes",
                              number, kMaxHeadBytes);
    if (end == at) {
      rest.remove_prefix(end + 2);
      break;
    }
    RETURN_IF_ERROR(read_line(head.substr(at, end - at), number, part, has_name));
    at = end + 2;
  }
  if (has_name) return ok();
  return invalid_argument("part {} of the form has no Content-Disposition", number);
}

}  // namespace

bool is_form(std::string_view content_type) {
  return same_word(trimmed(content_type.substr(0, content_type.find(';'))), kFormType);
}

StatusOr<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body) {
  if (!is_form(content_type))
    return invalid_argument("the body must be {}, with a boundary", kFormType);
  const auto type = parse_value(content_type);
  const std::string* const boundary = type ? type->find("boundary") : nullptr;
  if (boundary == nullptr) return invalid_argument("Content-Type {} needs one boundary", kFormType);
  if (!is_boundary(*boundary))
    return invalid_argument(
        "the boundary in Content-Type has {} bytes; allowed are 1 to {} of letters, digits and "
        "'()+_,-./:=?",
        boundary->size(), kMaxBoundary);
  const std::string mark = "\r\n--" + *boundary;
  std::string_view rest = body;
  if (rest.starts_with("\r\n")) rest.remove_prefix(2);
  if (!rest.starts_with(std::string_view(mark).substr(2)))
    return invalid_argument("the form does not begin with its boundary");
  rest.remove_prefix(mark.size() - 2);
  std::vector<FormPart> parts;
  for (;;) {
    // Behind a boundary: "--" at the end, else blanks and the end of the line.
    if (rest.starts_with("--")) return parts;
    const size_t line = rest.substr(0, kMaxHeadBytes).find_first_not_of(" \t");
    if (line == std::string_view::npos || !rest.substr(line).starts_with("\r\n"))
      return invalid_argument("the form is cut off or malformed behind part {}", parts.size());
    rest.remove_prefix(line + 2);
    if (parts.size() == kMaxFormParts)
      return invalid_argument("the form has more than the {} parts that are allowed",
                              kMaxFormParts);
    FormPart& part = parts.emplace_back();
    RETURN_IF_ERROR(read_head(rest, parts.size(), part));
    // An empty part's end may begin with the line end of its headers.
    const bool is_empty = rest.starts_with(std::string_view(mark).substr(2));
    const size_t end = is_empty ? 0 : find_text(rest, mark);
    if (end == std::string_view::npos)
      return invalid_argument("the form has no end: no boundary behind part {}", parts.size());
    part.body = rest.substr(0, end);
    rest.remove_prefix(end + mark.size() - (is_empty ? 2 : 0));
  }
}

}  // namespace nereid::front
