// Inputs of a Whisper engine for the model whisper_bls: features of the sound, and the tokenizer of
// prompt and output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "speech/features/log_mel.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {

// The most samples of a request: 30 s of 16 kHz, a window of the encoder.
inline constexpr int64_t kMaxSamples = int64_t{speech::kWindowFrames} * speech::kFrameHop;

// Features [frames, num_mels] of `samples`, as fbank.py of the model's script makes them: frames of
// the mirrored sound at both ends; zeros behind them up to `least_frames`, and up to an even
// number. InvalidArgument: a number that is not finite, or fewer samples than the mirror needs, or
// more than kMaxSamples.
StatusOr<std::vector<float>> log_mel_features(const speech::LogMel& mel,
                                              std::span<const float> samples, int64_t least_frames);

// The first tokenizer found in `folders`: multilingual.tiktoken (the ranks of openai/whisper, to
// which the special tokens of 100 languages are added behind them), or one that Tokenizer::load()
// reads. NotFound names the folders.
StatusOr<std::shared_ptr<const text::Tokenizer>> load_speech_tokenizer(
    std::span<const std::filesystem::path> folders);

}  // namespace nereid::backend
