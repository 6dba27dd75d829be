// Encoder-decoder models in the TensorRT-LLM layout: two folders side by side, `encoder` and
// `decoder`, each a checkpoint or an engine. Cross attention's keys and values are in the decoder's
// folder. Source: the converters examples/models/core/enc_dec and examples/models/core/whisper of
// the repository NVIDIA/TensorRT-LLM.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "models/family.h"

namespace nereid::models {

inline constexpr std::string_view kEncoderFolder = "encoder", kDecoderFolder = "decoder";

// `dir`/decoder where `dir` has no model itself, but the folders of both halves; else `dir`.
std::filesystem::path decoder_folder(const std::filesystem::path& dir);

// The folder of the other half, beside `dir`.
std::filesystem::path folder_beside(const std::filesystem::path& dir, Half half);

// Whether config.json is that of a half's folder, a checkpoint's or an engine's.
bool is_half_config(const json::object& config);
Half half_of(const json::object& config);

// config.json of a whole model under Hugging Face's names, from those of both folders. Errors:
// file, field, value, what is allowed.
StatusOr<json::object> config_of_halves(const json::object& encoder,
                                        const std::string& encoder_file,
                                        const json::object& decoder,
                                        const std::string& decoder_file);

// config.json of one half's folder, see trtllm_config(). `other`: the other half of the model.
json::object half_config(const Model& model, const Model& other, std::string_view dtype,
                         const Ranks& ranks);

// Checks that fields of a half's config.json about norms, biases and positions are the model's.
Status check_half_config(const json::object& config, const std::string& where, const Model& model);

// The weights that each folder has, with facts for rank_tensors().
struct FolderGraphs {
  graph::Graph encoder, decoder;
};
FolderGraphs folder_graphs(const Model& encoder, const Model& decoder);

// Replaces the weights' parts by the tensors of both folders; names begin with the folder's.
Status use_folder_tensors(const FolderGraphs& folders, Model& model);

}  // namespace nereid::models
