// Regular expressions as grammar expressions.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

inline constexpr int32_t kMaxRegexRepeat = 10'000;
inline constexpr int32_t kMaxGrammarDepth = 64;

struct RegexForm {
  bool anywhere = false;     // the text only has to contain a match where no anchor says otherwise
  bool json_string = false;  // the text is what stands between the quotes of a JSON string
  bool any_case = false;     // letters also match those of the other case; all are of ASCII
  bool dot_is_all = false;   // '.' matches ends of lines too
  bool assertions = false;   // the result may have some, and is for a TextSet
};

// Literals, '.', classes, escapes (\d \w \s of ASCII; \xHH, \uHHHH, \u{H..}), groups, '|', greedy
// and lazy quantifiers; without `assertions`, anchors only where an alternative of the whole begins
// and ends, and no \b.
// InvalidArgument names pattern, offset and reason.
StatusOr<ExprPtr> regex_expr(std::string_view pattern, const RegexForm& form = {});

// What \w matches.
CharSet word_chars();

// What stands between the quotes of a text in a grammar: characters, and the escapes above.
StatusOr<ExprPtr> text_expr(std::string_view text, const RegexForm& form = {});

// The texts of JSON strings, without quotes, that spell one of the characters.
ExprPtr in_json_string(const CharSet& chars);

}  // namespace nereid::text
