// Prompts of encoder-decoder models: the decoder's first tokens, and the languages of translations,
// which are special tokens ("fra_Latn", "fr_XX", "__fr__").
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::text {

// Ids of forced_decoder_ids in generation_config.json, else in config.json, of a model's folder:
// those of positions 1, 2, ... up to one that is absent or null. A position is named once.
// InvalidArgument: they are no pairs of a position and an id or null.
StatusOr<std::vector<int32_t>> read_forced_ids(const std::filesystem::path& dir);

class DecoderPrompts {
 public:
  // Reads config.json (of an engine: its `pretrained_config`), generation_config.json and
  // tokenizer_config.json of a model or tokenizer directory; absent files: no tokens.
  static DecoderPrompts load(const std::filesystem::path& dir,
                             std::shared_ptr<const Tokenizer> tokenizer);

  // decoder_start_token_id, then forced_bos_token_id if there is one, else the ids of
  // read_forced_ids(); may be empty.
  const std::vector<int32_t>& usual() const { return usual_; }

  // The prompt with another second token. InvalidArgument: not in the vocabulary, or the model
  // names no first token.
  StatusOr<std::vector<int32_t>> with_second(int64_t id) const;

  // The prompt of a translation into `language`. InvalidArgument: no language of the model.
  StatusOr<std::vector<int32_t>> into(std::string_view language) const;

  // Replaces the language that the tokenizer added to a prompt. InvalidArgument: no language of the
  // model, or the tokenizer adds none.
  Status set_source(std::string_view language, std::vector<int32_t>& prompt) const;

 private:
  StatusOr<int32_t> language_id(std::string_view language) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> usual_;
  bool starts_with_language_ = false;  // the first token is a language
  int32_t source_ = -1;                // the language that the tokenizer adds; -1: none
};

}  // namespace nereid::text
