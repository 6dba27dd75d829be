#include "front/openai/audio/served_speech.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <system_error>
#include <utility>

#include "base/json_members.h"
#include "front/openai/audio/pass_request.h"

namespace nereid::front {
namespace {

std::vector<int32_t> ids_of(const json::value& config, std::string_view key) {
  std::vector<int32_t> out;
  for (const json::value& id : array_member(config, key))
    if (id.is_int64() && id.get_int64() >= 0 &&
        id.get_int64() <= std::numeric_limits<int32_t>::max())
      out.push_back(static_cast<int32_t>(id.get_int64()));
  return out;
}

// A parameter of the configuration; 0: none, or no number up to a million.
int64_t number_of(const json::value& config, std::string_view key) {
  constexpr int64_t kMost = 1000000;
  const std::string text = config_parameter(config, key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && value > 0 && value <= kMost ? value : 0;
}

constexpr size_t kMostHeads = 512;  // of a request

// Pairs of layer and head.
std::vector<int32_t> heads_of(const json::value& config) {
  std::vector<int32_t> out;
  for (const json::value& pair : array_member(config, "alignment_heads")) {
    const json::array* const two = pair.if_array();
    if (!two || two->size() != 2 || !(*two)[0].is_int64() || !(*two)[1].is_int64() ||
        out.size() == 2 * kMostHeads)
      return {};
    for (const json::value& number : *two) out.push_back(static_cast<int32_t>(number.get_int64()));
  }
  return out;
}

// All heads of the upper half of the decoder's layers, as timing.py of openai/whisper has it for
// models without a list.
std::vector<int32_t> upper_heads(const json::value& config) {
  const int64_t layers = integer_member(config, "decoder_layers");
  const int64_t heads = integer_member(config, "decoder_attention_heads");
  constexpr int64_t kMost = kMostHeads;
  if (layers < 1 || layers > kMost || heads < 1 || (layers - layers / 2) * heads > kMost) return {};
  std::vector<int32_t> out;
  for (int64_t layer = layers / 2; layer < layers; ++layer)
    for (int64_t head = 0; head < heads; ++head)
      out.insert(out.end(), {static_cast<int32_t>(layer), static_cast<int32_t>(head)});
  return out;
}

void read_generation_config(const std::filesystem::path& dir, ServedSpeech& speech) {
  // The checkpoint's older place for the lists is config.json.
  for (const char* name : {"config.json", "generation_config.json"}) {
    const auto config = read_json_file(dir / name);
    if (!config.ok() || !config->is_object()) continue;
    if (speech.alignment_heads.empty()) speech.alignment_heads = upper_heads(*config);
    if (member(*config, "suppress_tokens"))
      speech.model.suppressed = ids_of(*config, "suppress_tokens");
    if (member(*config, "begin_suppress_tokens"))
      speech.model.suppressed_first = ids_of(*config, "begin_suppress_tokens");
    const int64_t most = integer_member(*config, "max_initial_timestamp_index");
    if (most > 0 && most <= std::numeric_limits<int32_t>::max())
      speech.model.most_first_timestamp = static_cast<int32_t>(most);
    if (const auto heads = heads_of(*config); !heads.empty()) speech.alignment_heads = heads;
  }
}

}  // namespace

bool ServedSpeech::has_words(const ModelInfo& engine) const {
  return !alignment_heads.empty() && engine.input(kAlignmentInput) != nullptr;
}

StatusOr<std::shared_ptr<const ServedSpeech>> load_speech(
    const json::value& engine_config, const ModelInfo& engine, const std::filesystem::path& dir,
    std::shared_ptr<const text::Tokenizer> tokenizer, int64_t max_tokens) {
  auto out = std::make_shared<ServedSpeech>();
  out->num_mels = static_cast<int>(number_of(engine_config, "num_mel_bins"));
  const TensorInfo* const features = engine.input(kFeaturesInput);
  if (out->num_mels <= 0 || features == nullptr)
    return unsupported(
        "model '{}' takes no sound: /v1/audio needs a speech model, such as Whisper (nereid serve "
        "hf://openai/whisper-large-v3-turbo)",
        engine.name);
  const int64_t positions = number_of(engine_config, "encoder_positions");
  if (positions > 0) out->model.window_frames = 2 * positions;
  out->feature_type = features->type;
  out->max_beams =
      static_cast<int>(std::max<int64_t>(number_of(engine_config, "max_beam_width"), 1));
  out->model.max_tokens = max_tokens;
  out->model.has_rules = engine.input(kRulesInput) != nullptr;
  auto vocabulary =
      speech::find_vocabulary([&](std::string_view token) { return tokenizer->token_id(token); });
  if (!vocabulary.ok())
    return annotate(vocabulary.status(), "model '" + engine.name + "' is no speech model");
  out->model.vocabulary = *std::move(vocabulary);
  out->model.tokenizer = std::move(tokenizer);
  read_generation_config(dir, *out);
  return std::shared_ptr<const ServedSpeech>(std::move(out));
}

}  // namespace nereid::front
