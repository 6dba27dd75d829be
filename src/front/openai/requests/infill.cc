#include "front/openai/requests/infill.h"

#include <algorithm>
#include <iterator>

namespace nereid::front {
namespace {

constexpr FillMiddleTokens kMarks[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                       {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                       {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                                       {"▁<PRE>", "▁<SUF>", "▁<MID>"},
                                       {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}};

}  // namespace

const FillMiddleTokens* find_fill_middle_tokens(
    const std::function<bool(std::string_view)>& has_token) {
  const auto found = std::ranges::find_if(kMarks, [&](const FillMiddleTokens& m) {
    return has_token(m.prefix) && has_token(m.suffix) && has_token(m.middle);
  });
  return found == std::end(kMarks) ? nullptr : &*found;
}

std::string fill_middle_prompt(const FillMiddleTokens& marks, std::string_view before,
                               std::string_view behind) {
  std::string out;
  for (const std::string_view part : {marks.prefix, before, marks.suffix, behind, marks.middle})
    out += part;
  return out;
}

}  // namespace nereid::front
