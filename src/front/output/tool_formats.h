// Formats of tool calls: one row for each.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/tool_call.h"

namespace nereid::front {

// The calls at the beginning of a text that may continue.
struct CallsRead {
  enum class State { kMore, kCalls, kText };  // kMore: not certain yet
  State state = State::kMore;
  size_t length = 0;  // of the calls, or of text that is certainly none
  std::vector<ToolCall> calls = {};
  bool needs_end = false;  // calls only if the model ended its answer itself
};

struct ToolMarker;
// Reads calls behind a marker's opening text. `final`: the text ends here, so the result is never
// kMore. A certain result stays so for longer texts. `tools`: those of the request; or null.
using ReadCalls = CallsRead (*)(const ToolMarker& marker, std::string_view text, bool final,
                                const json::array* tools);

struct ToolMarker {
  std::string_view open;
  std::string_view close = {};  // dropped behind a call; may be missing
  ReadCalls read = nullptr;     // null: `open` is dropped from the text and begins nothing
  bool only_first = false;      // only blanks may precede it, and tools must be known
  bool keeps_open = false;      // `open` is passed to the reader
  bool repeats = false;         // further calls may follow without another opening marker
  bool is_control = false;      // `open` is a control token, which texts about calls do not contain
};

struct ToolFormat {
  std::string_view name;
  std::span<const ToolMarker> markers;
  // Texts in chat templates that teach the format: one of these.
  std::array<std::string_view, 2> signs;
  // Markers may be special tokens, which texts normally lack.
  bool needs_special_tokens = false;
};

// "openai" (Harmony) has no markers: see harmony.h.
std::span<const ToolFormat> tool_formats();
const ToolFormat* find_tool_format(std::string_view name);  // null: unknown
// The format that a chat template teaches; `mentions(sign)`: whether the template contains that
// text. Null: an unknown format. A template without tools leaves them to the client's prompt, where
// Hermes' format is usual.
template <class Mentions>
const ToolFormat* tool_format_of_template(Mentions mentions) {
  for (const ToolFormat& format : tool_formats())
    for (const std::string_view sign : format.signs)
      if (!sign.empty() && mentions(sign)) return &format;
  return mentions("tools") ? nullptr : find_tool_format("hermes");
}

}  // namespace nereid::front
