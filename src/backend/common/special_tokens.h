// End and padding tokens of a tokenizer folder.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "base/status.h"

namespace nereid::backend {

// A special token of tokenizer_config.json ("eos_token", "pad_token"), which is a string or an
// object with "content"; "" when absent.
std::string special_token(const json::value& tokenizer_config, std::string_view key);

// tokenizer_config.json of `dir`; null without such a file.
StatusOr<json::value> read_tokenizer_config(const std::filesystem::path& dir);

}  // namespace nereid::backend
