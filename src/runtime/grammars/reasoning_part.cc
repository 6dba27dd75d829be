#include "runtime/grammars/reasoning_part.h"

#include <algorithm>
#include <string>
#include <vector>

namespace nereid::runtime {

StatusOr<text::ReasoningPart> reasoning_part(const ReasoningConfig& wanted,
                                             const text::Tokenizer& tokenizer, int32_t vocab_size) {
  const auto ids_of = [&](const std::string& mark) -> StatusOr<std::vector<TokenId>> {
    ASSIGN_OR_RETURN(auto ids, tokenizer.encode(mark, {.add_special_tokens = false}));
    if (std::ranges::any_of(ids, [&](TokenId id) { return id >= vocab_size; }))
      return invalid_argument("reasoning: '{}' has tokens that the model does not know", mark);
    return ids;
  };
  text::ReasoningPart part{.open = wanted.open,
                           .close = wanted.close,
                           .begun = wanted.begun,
                           .max_tokens = wanted.max_tokens};
  const auto add_marks = [&](const std::string& mark, const std::vector<TokenId>& ids) {
    if (ids.size() == 1) part.marks.emplace_back(ids[0], mark);
    for (const TokenId id : ids)
      if (ids.size() > 1 && tokenizer.is_special(id))
        part.marks.emplace_back(id, tokenizer.token_bytes(id));
  };
  ASSIGN_OR_RETURN(part.close_ids, ids_of(wanted.close));
  if (part.close_ids.empty())
    return invalid_argument("reasoning.close: '{}' has no tokens", wanted.close);
  ASSIGN_OR_RETURN(const auto open_ids, ids_of(wanted.open));
  add_marks(wanted.open, open_ids);
  add_marks(wanted.close, part.close_ids);
  return part;
}

}  // namespace nereid::runtime
