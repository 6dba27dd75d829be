// Word patterns of the byte-level BPE tokenizers in GGUF files, by the names of
// `tokenizer.ggml.pre`. Source: src/llama-vocab.cpp of ggml-org/llama.cpp; where a model's own
// tokenizer.json has another normalisation or pattern, that one is used.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nereid::text {

struct GgufWords {
  // Applied one after the other; a match and the text between matches are pieces of their own.
  std::span<const std::string_view> patterns;
  std::span<const std::string_view> names;  // values of tokenizer.ggml.pre
  bool ignore_merges = false;               // a word in the vocabulary is not merged
  bool adds_bos = false;                    // default of tokenizer.ggml.add_bos_token
  bool is_nfc = false;                      // text is NFC-normalised first
};

// The row of that name; nullptr without one.
const GgufWords* find_gguf_words(std::string_view name);

// All names, for an error: "gpt-2, phi-2, ...".
std::string gguf_words_names();

}  // namespace nereid::text
