#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "text/tokenizer/regex_syntax.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxPatternBytes = size_t{1} << 16;
// Internal match() calls for each position of a text of `bytes`.
uint32_t match_limit(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(20'000'000, 10'000 + 64 * bytes));
}
constexpr uint32_t kDepthLimit = 20'000'000;   // high, since the heap limit below applies first
constexpr size_t kStretchBytes = 256;          // start positions tried by one call
constexpr size_t kCallsToAsk = 16;             // calls between two checks of is_unwanted
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // interpreter only, when the JIT stack is too small

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return fmt::format("code {}", code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool has_jit = false;
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
  ASSIGN_OR_RETURN(const std::string translated, to_pcre2(pattern));
  return build(pattern, translated);
}

StatusOr<Regex> Regex::build(std::string_view shown, const std::string& pattern) {
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                 PCRE2_DOLLAR_ENDONLY | PCRE2_USE_OFFSET_LIMIT,
                             &error, &offset, nullptr);
  if (code->code == nullptr) {
    return invalid_argument("regex '{}': {} at offset {} of its PCRE2 form", shown,
                            error_text(error), offset);
  }
  // Without JIT (unsupported CPU or memory policy) the interpreter gives the same matches.
  code->has_jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code->context = pcre2_match_context_create(nullptr);
  if (code->context == nullptr) return resource_exhausted("no memory for a regex match context");
  pcre2_set_depth_limit(code->context, kDepthLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

Status Regex::find_all(std::string_view subject, std::vector<Span>& matches,
                       EncodeWork& work) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> context(
      pcre2_match_context_copy(code_->context), pcre2_match_context_free);
  if (data == nullptr || context == nullptr) {
    return resource_exhausted("no memory for regex match data");
  }
  pcre2_set_match_limit(context.get(), match_limit(subject.size()));
  const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  // The interpreter may read the whole text for each stretch, hence few stretches.
  const size_t stretch =
      code_->has_jit ? kStretchBytes : std::max(kStretchBytes, subject.size() / 64);
  size_t at = 0;
  for (size_t calls = 1; at < subject.size(); ++calls) {
    if (calls % kCallsToAsk == 0) RETURN_IF_ERROR(work.ask());
    // Last position where a match may begin.
    const size_t last = std::min(at + stretch, subject.size());
    pcre2_set_offset_limit(context.get(), last);
    int rc = pcre2_match(code_->code, text, subject.size(), at, PCRE2_NO_UTF_CHECK, data.get(),
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, text, subject.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data.get(), context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
      RETURN_IF_ERROR(work.charge(last - at + 1));
      if (last == subject.size()) break;
      RETURN_IF_ERROR(work.ask());
      at = last + 1;  // the next character begins there or behind it
      while (at < subject.size() && (static_cast<uint8_t>(subject[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    if (rc < 0)
      return invalid_argument("text of {} bytes at byte {}: {}", subject.size(), at,
                              error_text(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    // \K inside a look-around can report a range that runs backwards or starts before `at`.
    if (range[1] < range[0] || range[0] < at) {
      return invalid_argument("the pre-tokenizer's regex moves the start of its match");
    }
    matches.push_back({range[0], range[1]});
    RETURN_IF_ERROR(work.charge(range[1] - at + 1));
    at = range[1];
    if (range[0] == range[1] && at < subject.size()) at += utf8_step(subject.substr(at)).length;
  }
  return ok();
}

}  // namespace nereid::text
