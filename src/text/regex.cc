#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxPatternBytes = size_t{1} << 16;
constexpr uint32_t kMatchLimit = 20'000'000;   // internal match() calls per find
constexpr uint32_t kDepthLimit = 20'000'000;   // the heap limit below is the one that counts
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // interpreter only, when the JIT stack is too small

constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return fmt::format("code {}", code);
  return reinterpret_cast<const char*>(buffer);
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Rewrites the escape at `p[i]` (the character after the backslash); returns characters consumed.
StatusOr<size_t> translate_escape(std::string_view p, size_t i, bool in_class, std::string& out) {
  const std::string_view open = in_class ? "" : "[";
  const std::string_view close = in_class ? "" : "]";
  switch (p[i]) {
    case 's':
      out += "\\p{White_Space}";
      return 1;
    case 'S':
      out += "\\P{White_Space}";
      return 1;
    case 'w':
      out += fmt::format("{}{}{}", open, kWord, close);
      return 1;
    case 'h':
      out += fmt::format("{}0-9a-fA-F{}", open, close);
      return 1;
    case 'W':
    case 'H':
      if (in_class) return unsupported("regex '{}': \\{} inside a character class", p, p[i]);
      out += p[i] == 'W' ? fmt::format("[^{}]", kWord) : "[^0-9a-fA-F]";
      return 1;
    case 'u':
      if (p.size() - i > 4 && is_hex(p[i + 1]) && is_hex(p[i + 2]) && is_hex(p[i + 3]) &&
          is_hex(p[i + 4])) {
        out += fmt::format("\\x{{{}}}", p.substr(i + 1, 4));
        return 5;
      }
      break;
    default:
      break;
  }
  out += '\\';
  out += p[i];
  return 1;
}

StatusOr<std::string> translate(std::string_view p) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < p.size();) {
    const char c = p[i++];
    if (c == '\\' && i < p.size()) {
      ASSIGN_OR_RETURN(const size_t used, translate_escape(p, i, in_class, out));
      i += used;
      continue;
    }
    if (in_class && (c == '[' || (c == '&' && i < p.size() && p[i] == '&'))) {
      return unsupported("regex '{}': '{}' inside a character class (offset {})", p, c, i - 1);
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

StatusOr<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return invalid_argument("regex of {} bytes is longer than {}", pattern.size(),
                            kMaxPatternBytes);
  }
  ASSIGN_OR_RETURN(const std::string translated, translate(pattern));
  return build(pattern, translated);
}

StatusOr<Regex> Regex::literal(std::string_view text) {
  if (text.empty() || text.size() > kMaxPatternBytes) {
    return invalid_argument("string pattern of {} bytes: must have 1 to {}", text.size(),
                            kMaxPatternBytes);
  }
  std::string pattern;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      pattern += fmt::format("\\x{{{:02x}}}", static_cast<unsigned>(c));
    } else {
      pattern += c;
    }
  }
  return build(text, pattern);
}

StatusOr<Regex> Regex::build(std::string_view shown, const std::string& pattern) {
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY,
      &error, &offset, nullptr);
  if (code->code == nullptr) {
    return invalid_argument("regex '{}': {} at offset {} of its PCRE2 form", shown,
                            error_text(error), offset);
  }
  // Without JIT (unsupported CPU or memory policy) the interpreter gives the same matches.
  static_cast<void>(pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE));
  code->context = pcre2_match_context_create(nullptr);
  if (code->context == nullptr) return resource_exhausted("no memory for a regex match context");
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_depth_limit(code->context, kDepthLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

Status Regex::find_all(std::string_view subject, std::vector<Span>& matches) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (data == nullptr) return resource_exhausted("no memory for regex match data");
  const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  size_t at = 0;
  while (at < subject.size()) {
    int rc = pcre2_match(code_->code, text, subject.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                         code_->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, text, subject.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), code_->context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      return invalid_argument("text of {} bytes at byte {}: {}", subject.size(), at,
                              error_text(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    // \K inside a look-around can report a range that runs backwards or starts before `at`.
    if (range[1] < range[0] || range[0] < at) {
      return invalid_argument("the pre-tokenizer's regex moves the start of its match");
    }
    matches.push_back({range[0], range[1]});
    at = range[1];
    if (range[0] == range[1] && at < subject.size()) at += utf8_step(subject.substr(at)).length;
  }
  return ok();
}

}  // namespace nereid::text
