// A served speech model: facts beside those of language models. Internal to front/openai.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/model_info.h"
#include "front/bridge/tensor.h"
#include "speech/transcription.h"

namespace nereid::front {

struct ServedSpeech {
  speech::SpeechModel model;
  int num_mels = 0;
  int max_beams = 1;                               // of a request
  DataType feature_type = TRITONSERVER_TYPE_FP32;  // of encoder_input_features: FP32, FP16 or BF16
  std::vector<int32_t> alignment_heads;  // layer, head, layer, head, ...; empty: none known

  // Whether words get times: the engine gives attention, of heads that are known.
  bool has_words(const ModelInfo& engine) const;
};

// `engine_config` is the engine's configuration, `dir` the folder with the tokenizer, whose
// generation_config.json may have suppress_tokens, begin_suppress_tokens,
// max_initial_timestamp_index and alignment_heads (without: the heads of the upper half of
// config.json's decoder_layers). Unimplemented: the model does not take sound (it
// has no parameter num_mel_bins above 0). InvalidArgument: the tokenizer lacks a token.
StatusOr<std::shared_ptr<const ServedSpeech>> load_speech(
    const json::value& engine_config, const ModelInfo& engine, const std::filesystem::path& dir,
    std::shared_ptr<const text::Tokenizer> tokenizer, int64_t max_tokens);

}  // namespace nereid::front
