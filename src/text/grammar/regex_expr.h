// Regular expressions as grammar expressions.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/expr.h"

namespace nereid::text {

inline constexpr int32_t kMaxRegexRepeat = 10'000;
inline constexpr int32_t kMaxGrammarDepth = 64;

struct RegexForm {
  bool anywhere = false;     // the text only has to contain a match, where no anchor forbids it
  bool json_string = false;  // the text is inside the quotes of a JSON string
  bool any_case = false;     // ASCII letters match both cases
  bool dot_is_all = false;   // '.' matches line ends too
  bool assertions = false;   // the result may contain assertions, for a TextSet
};

// Literals, '.', classes, escapes (\d \w \s of ASCII; \xHH, \uHHHH, \u{H..}), groups, '|', greedy
// and lazy quantifiers; without `assertions`, anchors only at the ends of top-level alternatives,
// and no \b. InvalidArgument names pattern, offset and reason.
StatusOr<ExprPtr> regex_expr(std::string_view pattern, const RegexForm& form = {});

// The characters of \w.
CharSet word_chars();

// The inside of a quoted text in a grammar: characters, and the escapes above.
StatusOr<ExprPtr> text_expr(std::string_view text, const RegexForm& form = {});

// Spellings of one of the characters in a JSON string, without quotes.
ExprPtr in_json_string(const CharSet& chars);

}  // namespace nereid::text
