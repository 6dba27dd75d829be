// Grammars of tests: whole texts, with a vocabulary of a few tokens.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace nereid::text {

// All bytes, then some longer tokens.
inline std::shared_ptr<const TokenTrie> test_tokens() {
  static const auto tokens = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* text :
         {"\"a\":", "\": ", "\",", "\"}",      "}",   "true", "tru", "e",   "]]",    "12",
          "1.5",    " ",    "  ",  "\xC3\xA4", "abc", "ab",   "",    "{\"", "\"}\n", "-1"})
      texts.emplace_back(text);
    return std::make_shared<const TokenTrie>(static_cast<int32_t>(texts.size()), [&](int32_t id) {
      return std::string_view(texts[static_cast<size_t>(id)]);
    });
  }();
  return tokens;
}

inline std::shared_ptr<Grammar> test_grammar(GrammarKind kind, std::string_view text) {
  auto grammar = Grammar::compile(kind, text, test_tokens());
  EXPECT_TRUE(grammar.ok()) << text << ": " << grammar.status();
  return grammar.ok() ? *grammar : nullptr;
}

// Whether the text, taken byte by byte, is one of the grammar's.
inline bool matches(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  if (!grammar) return false;
  Matcher matcher(grammar);
  for (const char& c : text)
    if (!matcher.accept({&c, 1}).ok()) return false;
  return matcher.may_end();
}

inline void expect_texts(GrammarKind kind, std::string_view grammar,
                         const std::vector<std::string>& good,
                         const std::vector<std::string>& bad) {
  const auto compiled = test_grammar(kind, grammar);
  for (const std::string& text : good)
    EXPECT_TRUE(matches(compiled, text)) << grammar << ": " << text;
  for (const std::string& text : bad)
    EXPECT_FALSE(matches(compiled, text)) << grammar << ": " << text;
}

// A schema, texts of it and texts that are not.
struct SchemaCase {
  const char* schema;
  std::vector<std::string> good, bad;
};
inline void expect_schemas(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) expect_texts(GrammarKind::kJsonSchema, c.schema, c.good, c.bad);
}

inline std::string refusal(GrammarKind kind, std::string_view text) {
  const auto grammar = Grammar::compile(kind, text, test_tokens());
  return grammar.ok() ? "accepted" : std::string(message(grammar.status()));
}

}  // namespace nereid::text
