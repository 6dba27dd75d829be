// A speech model's vocabulary for tests: a token for each byte, then special tokens.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "speech/transcription.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::speech::testing_only {

inline constexpr int32_t kEnd = 256, kStart = 257, kEnglish = 258, kGerman = 259, kJapanese = 260,
                         kTranslate = 261, kTranscribe = 262, kPrevious = 263, kNoSpeech = 264,
                         kNoTimestamps = 265, kZero = 266, kNumTimestamps = 1501;

inline int32_t stamp(double seconds) { return kZero + static_cast<int32_t>(seconds * 50 + 0.5); }

// Byte-level tokens are written as characters: printable ones as they are, others from U+0100 on.
inline std::string character_of(int byte) {
  const auto is_plain = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!is_plain(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += is_plain(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// tokenizer.json.
inline json::value tokenizer_json() {
  json::object vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[character_of(byte)] = byte;
  std::vector<std::string> special = {
      "<|endoftext|>", "<|startoftranscript|>", "<|en|>",         "<|de|>",
      "<|ja|>",        "<|translate|>",         "<|transcribe|>", "<|startofprev|>",
      "<|nospeech|>",  "<|notimestamps|>"};
  for (int i = 0; i < kNumTimestamps; ++i) special.push_back(fmt::format("<|{:.2f}|>", i * 0.02));
  json::array added;
  for (size_t i = 0; i < special.size(); ++i)
    added.push_back(json::object{{"id", kEnd + static_cast<int64_t>(i)},
                                 {"content", special[i]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  const json::object level = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", true}};
  return json::object{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", json::object{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}};
}

inline SpeechModel speech_model() {
  SpeechModel model;
  model.tokenizer = *text::Tokenizer::from_json(tokenizer_json());
  model.vocabulary =
      *find_vocabulary([&](std::string_view token) { return model.tokenizer->token_id(token); });
  return model;
}

inline std::vector<int32_t> ids_of(std::string_view text) {
  std::vector<int32_t> out;
  for (const char c : text) out.push_back(static_cast<uint8_t>(c));
  return out;
}

// Ids, texts and time stamps in one list.
class Tokens {
 public:
  Tokens& at(double seconds) { return id(stamp(seconds)); }
  Tokens& say(std::string_view text) {
    for (const int32_t id : ids_of(text)) ids.push_back(id);
    return *this;
  }
  Tokens& id(int32_t token) {
    ids.push_back(token);
    return *this;
  }
  std::vector<int32_t> ids;
};

}  // namespace nereid::speech::testing_only
