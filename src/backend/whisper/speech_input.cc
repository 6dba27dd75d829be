#include "backend/whisper/speech_input.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "speech/languages.h"

namespace nereid::backend {
namespace {

constexpr int64_t kMirrored = 200;  // samples in front of the first frame's middle
constexpr size_t kMaxRankFileBytes = size_t{16} << 20;
constexpr int kNumTimestamps = 1501;  // 0 to 30 s, 20 ms apart

// The file has a rank on each line; special tokens get the ids behind them, in the order of
// tokenizer.py of openai/whisper.
StatusOr<std::shared_ptr<const text::Tokenizer>> tokenizer_of_ranks(
    const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file, kMaxRankFileBytes));
  int64_t id = 0;  // of the next special token
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    id += text.find_first_not_of(" \t\r", begin) < end;
    begin = end + 1;
  }
  json::object added;
  const auto add = [&](const std::string& token) {
    added[std::to_string(id++)] = json::object{{"content", token}, {"special", true}};
  };
  add("<|endoftext|>");
  add("<|startoftranscript|>");
  for (const speech::Language& language : speech::languages())
    add(fmt::format("<|{}|>", language.code));
  for (const char* token : {"<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
                            "<|nospeech|>", "<|notimestamps|>"})
    add(token);
  for (int i = 0; i < kNumTimestamps; ++i) add(fmt::format("<|{:.2f}|>", i * 0.02));
  return text::Tokenizer::from_model_file(text, file.filename().string(),
                                          json::object{{"added_tokens_decoder", std::move(added)}});
}

}  // namespace

StatusOr<std::vector<float>> log_mel_features(const speech::LogMel& mel,
                                              std::span<const float> samples,
                                              int64_t least_frames) {
  const int64_t size = std::ssize(samples);
  if (size <= kMirrored || size > kMaxSamples)
    return invalid_argument("input 'WAV' has {} samples, expected {} to {} (30 s of 16 kHz)", size,
                            kMirrored + 1, kMaxSamples);
  const auto odd = std::ranges::find_if(samples, [](float x) { return !std::isfinite(x); });
  if (odd != samples.end())
    return invalid_argument("input 'WAV': sample {} is {}, expected finite numbers",
                            odd - samples.begin(), *odd);
  std::vector<float> mirrored(samples.begin(), samples.end());
  for (int64_t i = 1; i <= kMirrored; ++i)
    mirrored.push_back(samples[static_cast<size_t>(size - 1 - i)]);
  const int64_t frames = size / speech::kFrameHop;
  const int64_t padded = (std::max(frames, least_frames) + 1) / 2 * 2;
  const auto width = static_cast<size_t>(mel.num_mels());
  std::vector<float> out(static_cast<size_t>(padded) * width);
  const std::span<float> filled = std::span(out).first(static_cast<size_t>(frames) * width);
  mel.energies(mirrored, 0, frames, filled);
  const float loudest = *std::ranges::max_element(filled);
  for (float& x : filled) x = (std::max(x, loudest - 8) + 4) / 4;
  return out;
}

StatusOr<std::shared_ptr<const text::Tokenizer>> load_speech_tokenizer(
    std::span<const std::filesystem::path> folders) {
  std::vector<std::string> names;
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (const auto ranks = folder / "multilingual.tiktoken"; std::filesystem::exists(ranks, error))
      return tokenizer_of_ranks(ranks);
    if (text::Tokenizer::has_files(folder)) return text::Tokenizer::load(folder);
    names.push_back(folder.string());
  }
  return not_found("there is no multilingual.tiktoken and no other tokenizer in {}",
                   fmt::join(names, ", "));
}

}  // namespace nereid::backend
