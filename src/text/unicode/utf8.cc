#include "text/unicode/utf8.h"

#include <cstring>

namespace nereid::text {

namespace {

// Constraints of the lead byte: length in bytes (0 = no lead byte) and the range of the second
// byte, which excludes overlong forms, surrogates and values above U+10FFFF.
struct Lead {
  uint32_t length;
  uint8_t low, high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step_wide(std::string_view bytes) {
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {Utf8Step::kValid, 1, first};
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Step::kInvalid, 1, 0};
  char32_t code = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Step::kIncomplete, i, 0};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::kInvalid, i, 0};
    code = code << 6 | (byte & 0x3Fu);
  }
  return {Utf8Step::kValid, lead.length, code};
}

size_t ascii_prefix(std::string_view bytes) {
  size_t at = 0;
  for (uint64_t word = 0; at + sizeof word <= bytes.size(); at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (at < bytes.size() && static_cast<uint8_t>(bytes[at]) < 0x80) ++at;
  return at;
}

bool is_valid_utf8(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(ascii_prefix(bytes));
    if (bytes.empty()) return true;
    const Utf8Step step = utf8_step(bytes);
    if (step.kind != Utf8Step::kValid) return false;
    bytes.remove_prefix(step.length);
  }
}

Utf8Last utf8_last(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return {utf8_step(text.substr(at)).code, at};
}

void append_utf8(std::string& out, char32_t code) {
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) code = 0xFFFD;
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_;
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  while (true) {
    const size_t plain = ascii_prefix(bytes);
    out.append(bytes.data(), plain);
    bytes.remove_prefix(plain);
    if (bytes.empty()) return;
    const Utf8Step step = utf8_step_wide(bytes);
    if (step.kind == Utf8Step::kIncomplete) {
      pending_ = bytes;
      return;
    }
    if (step.kind == Utf8Step::kValid) {
      out.append(bytes.substr(0, step.length));
    } else {
      out.append(kReplacement);
    }
    bytes.remove_prefix(step.length);
  }
}

void Utf8Stream::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacement);
  pending_.clear();
}

size_t utf8_length(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace nereid::text
