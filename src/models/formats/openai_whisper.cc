#include "models/formats/openai_whisper.h"

#include <algorithm>
#include <utility>

#include "io/checkpoint.h"
#include "io/pickle.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::string_view kState = "model_state_dict.";

// Parts of tensor names, in the order of their replacement.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {".blocks.", ".layers."},
    {".cross_attn_ln.", ".encoder_attn_layer_norm."},
    {".attn_ln.", ".self_attn_layer_norm."},
    {".mlp_ln.", ".final_layer_norm."},
    {".cross_attn.", ".encoder_attn."},
    {".attn.", ".self_attn."},
    {".query.", ".q_proj."},
    {".key.", ".k_proj."},
    {".value.", ".v_proj."},
    {"_attn.out.", "_attn.out_proj."},
    {".mlp.0.", ".fc1."},
    {".mlp.2.", ".fc2."},
    {"encoder.ln_post.", "encoder.layer_norm."},
    {"decoder.ln.", "decoder.layer_norm."},
    {".token_embedding.", ".embed_tokens."},
    {".positional_embedding", ".embed_positions.weight"}};

// Special tokens of both vocabularies: the multilingual one begins at this size.
constexpr int64_t kMultilingual = 51865, kEndOfText = 50256;

// Rows of a matrix; 0: there is none.
int64_t rows_of(const io::TensorFile& file, std::string_view name) {
  const auto found = std::ranges::find(file.tensors(), name, &io::StoredTensor::name);
  return found == file.tensors().end() || found->shape.empty() ? 0 : found->shape[0];
}

}  // namespace

std::filesystem::path openai_whisper_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto is_file = [&](const std::filesystem::path& file) {
    return file.extension() == ".pt" && std::filesystem::is_regular_file(file, error);
  };
  if (is_file(path)) return path;
  for (const char* other : {"config.json", "params.json"})
    if (std::filesystem::exists(path / other, error)) return {};
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (!is_file(entry.path())) continue;
    if (!found.empty()) return {};
    found = entry.path();
  }
  return found;
}

StatusOr<json::object> read_openai_whisper_config(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const io::TensorFile opened, io::TensorFile::open(file));
  ASSIGN_OR_RETURN(const io::PickledFile pickled, io::parse_pickled_file(opened.header()));
  json::object dims;
  for (const io::PickledNumber& number : pickled.numbers)
    if (number.group == "dims") dims[number.name] = number.value;
  Config c(dims, file.string() + ": dims");
  const auto size = [&](std::string_view key, int64_t most) { return c.integer(key, 1, most); };
  const int32_t audio = size("n_audio_state", kMaxHidden), text = size("n_text_state", kMaxHidden);
  const int32_t vocab = size("n_vocab", kMaxVocab);
  if (c.status().ok() && audio != text)
    c.fail("n_text_state", fmt::format("{} is not n_audio_state {}", text, audio));
  // Four times the width in all published models.
  const int64_t inner = rows_of(opened, "model_state_dict.encoder.blocks.0.mlp.0.weight");
  const int64_t end = vocab >= kMultilingual ? kEndOfText + 1 : kEndOfText;
  json::object config = {{"architectures", json::array{"WhisperForConditionalGeneration"}},
                         {"model_type", "whisper"},
                         {"d_model", audio},
                         {"encoder_ffn_dim", inner},
                         {"decoder_ffn_dim", inner},
                         {"encoder_layers", size("n_audio_layer", kMaxLayers)},
                         {"decoder_layers", size("n_text_layer", kMaxLayers)},
                         {"encoder_attention_heads", size("n_audio_head", kMaxHeads)},
                         {"decoder_attention_heads", size("n_text_head", kMaxHeads)},
                         {"max_source_positions", size("n_audio_ctx", kMaxPositions)},
                         {"max_target_positions", size("n_text_ctx", kMaxPositions)},
                         {"num_mel_bins", size("n_mels", 1024)},
                         {"vocab_size", vocab},
                         {"activation_function", "gelu"}};
  RETURN_IF_ERROR(c.status());
  if (end + 1 < vocab) {
    config["eos_token_id"] = config["bos_token_id"] = end;
    config["decoder_start_token_id"] = end + 1;
  }
  return config;
}

std::string name_of_openai_tensor(const std::string& name) {
  if (!name.starts_with(kState)) return name;
  std::string out = "model." + name.substr(kState.size());
  for (const auto& [theirs, ours] : kWords)
    if (const size_t at = out.find(theirs); at != out.npos) out.replace(at, theirs.size(), ours);
  return out;
}

}  // namespace nereid::models
