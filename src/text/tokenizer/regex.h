// Regular expressions of tokenizer files (Oniguruma dialect) on PCRE2, with JIT and bounded work.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/encode_work.h"

namespace nereid::text {

struct Span {
  size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

// Immutable; find_all is thread safe.
class Regex {
 public:
  // Rewrites the pattern where the dialects differ (regex_syntax.h); ^ and $ match at lines.
  // InvalidArgument with pattern, offset and reason when it does not compile.
  static StatusOr<Regex> compile(std::string_view pattern);

  // Appends all non-overlapping matches in `subject` (valid UTF-8) from left to right to `matches`.
  // Offsets are bytes. InvalidArgument when the match limits are exceeded. Errors of `work`, which
  // is charged for each byte.
  Status find_all(std::string_view subject, std::vector<Span>& matches, EncodeWork& work) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static StatusOr<Regex> build(std::string_view shown, const std::string& pattern);
  std::shared_ptr<const Code> code_;
};

}  // namespace nereid::text
