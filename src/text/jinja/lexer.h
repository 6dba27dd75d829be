// Template source to tokens, with Jinja's whitespace rules applied to the text between tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nereid::text::jinja {

struct Token {
  enum Kind {
    kText,        // literal output
    kPrintBegin,  // {{
    kPrintEnd,    // }}
    kBlockBegin,  // {%
    kBlockEnd,    // %}
    kName,
    kString,  // text is the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  int line, column;  // of its first character, both from 1
};

// Settings of Hugging Face transformers: trim_blocks and lstrip_blocks on, one final newline
// dropped. The result ends with kEnd. Throws Error with line and column.
std::vector<Token> tokenize(std::string_view source);

}  // namespace nereid::text::jinja
