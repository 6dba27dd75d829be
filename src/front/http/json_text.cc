// JSON text helpers; see json_text.h.
#include "front/http/json_text.h"

#include <fmt/format.h>

#include <cmath>

namespace nereid::front {

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

void append_json_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) {
    if (text.find('.') == std::string::npos) text += ".0";
  } else if (exponent + 1 < text.size() && text[exponent + 1] == '+') {
    text.erase(exponent + 1, 1);
  }
  out += text;
}

std::string kserve_error_body(std::string_view message) {
  std::string out = "{\"error\":";
  append_json_string(out, message);
  out += "}";
  return out;
}

}  // namespace nereid::front
