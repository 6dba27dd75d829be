// Fill-in-the-middle prompts. Internal to front/openai.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nereid::front {

// The tokens before the prefix, before the suffix, and before the generated middle.
struct FillMiddleTokens {
  std::string_view prefix, suffix, middle;
};

// The tokens of a vocabulary; null: it has none. Sources: the tokenizers of Qwen2.5 and CodeGemma,
// StarCoder, SantaCoder, CodeLlama, DeepSeek-Coder.
const FillMiddleTokens* find_fill_middle_tokens(
    const std::function<bool(std::string_view)>& has_token);

// The prompt: token, `before`, token, `behind`, and the middle's token.
std::string fill_middle_prompt(const FillMiddleTokens& marks, std::string_view before,
                               std::string_view behind);

}  // namespace nereid::front
