// Texts with a gap that the model fills. Internal to front/openai.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace nereid::front {

// Tokens that stand before the text in front of the gap, before the text behind it, and where the
// text of the gap is to follow.
struct InfillMarks {
  std::string_view prefix, suffix, middle;
};

// The marks of a vocabulary; null: it has none. Sources: the tokenizers of Qwen2.5 and CodeGemma,
// StarCoder, SantaCoder, CodeLlama, DeepSeek-Coder.
const InfillMarks* find_infill_marks(const std::function<bool(std::string_view)>& has_token);

// The prompt of a text with a gap: mark, `before`, mark, `behind` and the mark where the gap goes
// on.
std::string infill_prompt(const InfillMarks& marks, std::string_view before,
                          std::string_view behind);

}  // namespace nereid::front
