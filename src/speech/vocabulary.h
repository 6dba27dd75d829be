// The special tokens of a speech model's vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace nereid::speech {

struct Vocabulary {
  int32_t end = -1;                // <|endoftext|>: ids below it are text
  int32_t start = -1;              // <|startoftranscript|>
  int32_t start_of_previous = -1;  // <|startofprev|>, in front of the text before the window
  int32_t no_timestamps = -1;      // <|notimestamps|>
  int32_t first_timestamp = -1;    // <|0.00|>, then every 20 ms
  int32_t no_speech = -1;          // <|nospeech|> or <|nocaptions|>; -1: none
  int32_t transcribe = -1, translate = -1;                 // -1: the model has one language
  std::vector<std::pair<std::string, int32_t>> languages;  // by code; empty: English alone

  bool is_multilingual() const { return !languages.empty() && transcribe >= 0; }
  bool is_timestamp(int32_t id) const { return id >= first_timestamp; }
  bool is_text(int32_t id) const { return id < end; }
  // nullopt: the model does not have it.
  std::optional<int32_t> language_id(std::string_view code) const;
  std::string_view language_of(int32_t id) const;  // "": no language

  // Special tokens that are never drawn: those of prompts.
  std::vector<int32_t> never_drawn() const;
};

// `token_id` is the tokenizer's look-up. InvalidArgument names a token that speech models need and
// this one lacks.
StatusOr<Vocabulary> find_vocabulary(
    const std::function<std::optional<int32_t>(std::string_view)>& token_id);

}  // namespace nereid::speech
