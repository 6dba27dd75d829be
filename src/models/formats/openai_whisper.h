// Whisper as OpenAI publishes it: one PyTorch file with `dims` and `model_state_dict`. Source:
// whisper/model.py of openai/whisper.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace nereid::models {

// The .pt file that `path` is, or that is the only one in a folder without config.json and
// params.json; empty: none.
std::filesystem::path openai_whisper_file(const std::filesystem::path& path);

// The equivalent config.json. Errors have file, field, value and what is allowed.
StatusOr<json::object> read_openai_whisper_config(const std::filesystem::path& file);

// The tensor's name in Hugging Face's files.
std::string name_of_openai_tensor(const std::string& name);

}  // namespace nereid::models
