// How the byte-level BPE tokenizers of GGUF files cut text before they merge: the names that
// `tokenizer.ggml.pre` has. Source: src/llama-vocab.cpp of ggml-org/llama.cpp; where the models'
// own tokenizer.json normalises or spells a pattern in another way, that holds.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nereid::text {

struct GgufWords {
  // Cut one after the other; a match and what lies between matches are pieces of their own.
  std::span<const std::string_view> patterns;
  std::span<const std::string_view> names;  // of tokenizer.ggml.pre
  bool ignore_merges = false;               // a word that is a token is not merged
  bool adds_bos = false;                    // unless tokenizer.ggml.add_bos_token says otherwise
  bool is_nfc = false;                      // text is normalised by NFC first
};

// The row that has the name, nullptr where none has.
const GgufWords* find_gguf_words(std::string_view name);

// All names, for an error: "gpt-2, phi-2, ...".
std::string gguf_words_names();

}  // namespace nereid::text
