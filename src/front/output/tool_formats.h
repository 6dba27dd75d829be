// How models write tool calls: one row for each format.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/tool_call.h"

namespace nereid::front {

// Text between `open` and `close` is what calls are read from. Without `close` it goes to the end
// of the text.
struct ToolMarker {
  std::string_view open, close;
  bool only_first = false;  // nothing but blanks may stand before it
  bool keeps_open = false;  // `open` is part of what is read
  bool is_dropped = false;  // `open` is left out of the text and begins nothing
};

// Calls in the text between markers, nothing when it is not of the format. `tools`: those of the
// request, for types of parameters; or null.
using ReadToolCalls = std::optional<std::vector<ToolCall>> (*)(std::string_view text,
                                                               const json::array* tools);

struct ToolFormat {
  std::string_view name;
  std::span<const ToolMarker> markers;
  ReadToolCalls read = nullptr;
  // What a chat template that teaches the format has in it.
  std::string_view template_sign;
  // Markers may be special tokens, which texts are usually without.
  bool needs_special_tokens = false;
};

// "openai" (Harmony) has no markers: see harmony.h.
std::span<const ToolFormat> tool_formats();
const ToolFormat* find_tool_format(std::string_view name);  // null: there is none
// The format that a chat template teaches; `mentions(sign)`: whether the template has that text.
template <class Mentions>
const ToolFormat* tool_format_of_template(Mentions mentions) {
  for (const ToolFormat& format : tool_formats())
    if (!format.template_sign.empty() && mentions(format.template_sign)) return &format;
  return find_tool_format("hermes");
}

}  // namespace nereid::front
