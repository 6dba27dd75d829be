// Hand-written scanners for the most common word patterns: several times faster than the
// equivalent regular expressions.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace nereid::text {

enum class WordRule {
  kGpt2,        // GPT-2 and ByteLevel's own
  kCl100k,      // Llama 3, Phi-4, GLM-4: digits in threes
  kQwen2,       // Qwen2 to Qwen3: single digits
  kO200k,       // GPT-4o, gpt-oss
  kTekken,      // Mistral Nemo and later: o200k without contractions, single digits
  kWhitespace,  // runs of \w, runs of neither \w nor \s; white space is dropped
};

// The rule equivalent to `pattern`, if any.
std::optional<WordRule> word_rule_of(std::string_view pattern);

// Appends the words of `text` (valid UTF-8) with `offset` added.
void scan_words(WordRule rule, std::string_view text, size_t offset, std::vector<Span>& words);

// scan_words() for up to `most` words from `begin`, a word's start; returns the
// start of the next one.
size_t scan_some_words(WordRule rule, std::string_view text, size_t begin, size_t most,
                       std::vector<Span>& words);

}  // namespace nereid::text
