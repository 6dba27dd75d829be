// Special tokens from tokenizer_config.json.
#include "backend/common/special_tokens.h"

namespace nereid::backend {

std::string special_token(const json::value& tokenizer_config, std::string_view key) {
  const auto* config = tokenizer_config.if_object();
  const auto* token = config == nullptr ? nullptr : config->if_contains({key.data(), key.size()});
  if (token != nullptr && token->is_object()) token = token->as_object().if_contains("content");
  if (token == nullptr || !token->is_string()) return "";
  return std::string(token->as_string());
}

StatusOr<json::value> read_tokenizer_config(const std::filesystem::path& dir) {
  const auto path = dir / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return json::value(nullptr);
  return read_json_file(path);
}

}  // namespace nereid::backend
