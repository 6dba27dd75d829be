#include "speech/vocabulary.h"

#include <algorithm>

#include "speech/languages.h"

namespace nereid::speech {

std::optional<int32_t> Vocabulary::language_id(std::string_view code) const {
  for (const auto& [name, id] : languages)
    if (name == code) return id;
  return std::nullopt;
}

std::string_view Vocabulary::language_of(int32_t id) const {
  for (const auto& [name, token] : languages)
    if (token == id) return name;
  return "";
}

std::vector<int32_t> Vocabulary::never_drawn() const {
  std::vector<int32_t> out;
  for (const int32_t id : {start, start_of_previous, no_speech, transcribe, translate})
    if (id >= 0) out.push_back(id);
  std::ranges::sort(out);
  return out;
}

StatusOr<Vocabulary> find_vocabulary(
    const std::function<std::optional<int32_t>(std::string_view)>& token_id) {
  Vocabulary out;
  struct Needed {
    std::string_view token;
    int32_t Vocabulary::*id;
  };
  for (const auto& [token, id] : {Needed{"<|endoftext|>", &Vocabulary::end},
                                  Needed{"<|startoftranscript|>", &Vocabulary::start},
                                  Needed{"<|startofprev|>", &Vocabulary::start_of_previous},
                                  Needed{"<|notimestamps|>", &Vocabulary::no_timestamps}}) {
    const auto found = token_id(token);
    if (!found) return invalid_argument("the tokenizer has no token {}", token);
    out.*id = *found;
  }
  // Tokenizer files of older conversions do not list the time stamps, which come next.
  out.first_timestamp = token_id("<|0.00|>").value_or(out.no_timestamps + 1);
  out.transcribe = token_id("<|transcribe|>").value_or(-1);
  out.translate = token_id("<|translate|>").value_or(-1);
  const auto no_speech = token_id("<|nospeech|>");
  out.no_speech = no_speech ? *no_speech : token_id("<|nocaptions|>").value_or(-1);
  for (const Language& language : languages())
    if (const auto id = token_id("<|" + std::string(language.code) + "|>"))
      out.languages.emplace_back(language.code, *id);
  return out;
}

}  // namespace nereid::speech
