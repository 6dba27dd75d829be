// The "pattern" of Split and Replace: a string or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/encode_work.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

class Pattern {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 16;

  // {"String": TEXT} or {"Regex": PATTERN}.
  static StatusOr<Pattern> from_json(const JsonNode& spec);
  static Pattern of_string(std::string text);

  // The string, or null for a regular expression.
  const std::string* string() const { return regex_ ? nullptr : &text_; }
  // The pattern's source text.
  const std::string& text() const { return text_; }

  // Appends all matches in `subject`, as Regex::find_all does.
  Status find_all(std::string_view subject, std::vector<Span>& matches, EncodeWork& work) const;

  // Replaces all matches. False: the start of the text was removed without a replacement.
  // ResourceExhausted when the result would be longer than `max_bytes`.
  StatusOr<bool> replace_all(std::string& subject, std::string_view content, size_t max_bytes,
                             EncodeWork& work) const;

 private:
  std::string text_;
  std::optional<Regex> regex_;
};

}  // namespace nereid::text
