#include "text/jinja/strings.h"

#include <algorithm>

#include "base/find_text.h"
#include "text/unicode/python.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

struct Last {
  char32_t code;
  size_t length;
};

Last last_code(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return {utf8_step(text.substr(at)).code, text.size() - at};
}

}  // namespace

std::string_view strip(std::string_view text, std::optional<std::string_view> chars, bool left,
                       bool right) {
  const auto goes = [&](char32_t code, std::string_view bytes) {
    return chars ? chars->find(bytes) != chars->npos : python::is_space(code);
  };
  while (left && !text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!goes(step.code, text.substr(0, step.length))) break;
    text.remove_prefix(step.length);
  }
  while (right && !text.empty()) {
    const Last last = last_code(text);
    if (!goes(last.code, text.substr(text.size() - last.length))) break;
    text.remove_suffix(last.length);
  }
  return text;
}

size_t count(std::string_view text, std::string_view part, int64_t limit) {
  size_t found = 0;
  for (size_t at = 0; limit != 0 && (at = find_text(text, part, at)) != text.npos;
       limit -= limit > 0) {
    at += part.size();
    ++found;
  }
  return found;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
  std::string out;
  if (from.empty()) {
    while (true) {
      if (limit != 0) out += to;
      if (limit > 0) --limit;
      if (text.empty()) return out;
      const size_t size = utf8_step(text).length;
      out += text.substr(0, size);
      text.remove_prefix(size);
    }
  }
  for (; limit != 0; limit -= limit > 0) {
    const size_t at = find_text(text, from);
    if (at == text.npos) break;
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  for (; limit != 0; limit -= limit > 0) {
    const size_t at = from_right ? rfind_text(text, separator) : find_text(text, separator);
    if (at == text.npos) break;
    if (from_right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  text = strip(text, std::nullopt, !from_right, from_right);
  for (; limit != 0 && !text.empty(); limit -= limit > 0) {
    size_t size = 0;
    if (from_right) {
      while (size < text.size()) {
        const Last last = last_code(text.substr(0, text.size() - size));
        if (python::is_space(last.code)) break;
        size += last.length;
      }
      parts.push_back(text.substr(text.size() - size));
      text.remove_suffix(size);
    } else {
      while (size < text.size()) {
        const Utf8Step step = utf8_step(text.substr(size));
        if (python::is_space(step.code)) break;
        size += step.length;
      }
      parts.push_back(text.substr(0, size));
      text.remove_prefix(size);
    }
    text = strip(text, std::nullopt, !from_right, from_right);
  }
  if (!text.empty()) parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto is_break = [](char32_t c) {
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!is_break(step.code)) {
      at += step.length;
      continue;
    }
    size_t end = at + step.length;
    if (step.code == '\r' && end < text.size() && text[end] == '\n') ++end;
    lines.push_back(text.substr(0, keep_ends ? end : at));
    text.remove_prefix(end);
    at = 0;
  }
  if (!text.empty()) lines.push_back(text);
  return lines;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace nereid::text::jinja
