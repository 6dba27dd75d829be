// Formats of reasoning: one row for each.
#pragma once

#include <span>
#include <string_view>

namespace nereid::front {

struct ReasoningFormat {
  std::string_view name;
  std::string_view open, close;
  bool always = false;  // text begins with reasoning also without `open`
  std::string_view template_sign;
  bool needs_special_tokens = false;
  // Harmony: the answer is in messages of channels (harmony.h). If a grammar is set, the answer is
  // the message that `close` opens; `end` is the part of `close` that ends the reasoning.
  std::string_view end = {};

  bool is_harmony() const { return !end.empty(); }
};

std::span<const ReasoningFormat> reasoning_formats();
const ReasoningFormat* find_reasoning_format(std::string_view name);  // null: unknown
// The format that a chat template uses, null: none; `mentions(sign)`: whether the template
// contains that text.
template <class Mentions>
const ReasoningFormat* reasoning_format_of_template(Mentions mentions) {
  for (const ReasoningFormat& format : reasoning_formats())
    if (!format.template_sign.empty() && mentions(format.template_sign)) return &format;
  return nullptr;
}

}  // namespace nereid::front
