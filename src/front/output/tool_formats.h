// How models write tool calls: one row for each format.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "front/output/tool_call.h"

namespace nereid::front {

// What a text that may go on begins with.
struct CallsRead {
  enum class State { kMore, kCalls, kText };  // kMore: not certain yet
  State state = State::kMore;
  size_t length = 0;  // of the calls, or of the text that is none
  std::vector<ToolCall> calls = {};
  bool needs_end = false;  // they are calls only where the model ended its answer itself
};

struct ToolMarker;
// Reads calls from what stands behind a marker's opening mark. `final`: the text ends here, so that
// it is never kMore. What has been certain of a text stays so when it goes on. `tools`: those of
// the request; or null.
using ReadCalls = CallsRead (*)(const ToolMarker& marker, std::string_view text, bool final,
                                const json::array* tools);

struct ToolMarker {
  std::string_view open;
  std::string_view close = {};  // dropped where it stands behind a call; it may be missing
  ReadCalls read = nullptr;     // null: `open` is left out of the text and begins nothing
  bool only_first = false;      // nothing but blanks may stand before it, and tools must be known
  bool keeps_open = false;      // `open` is part of what is read
  bool repeats = false;         // more may follow a call without another opening mark
  bool is_control = false;      // `open` is a control token, which texts about calls do not have
};

struct ToolFormat {
  std::string_view name;
  std::span<const ToolMarker> markers;
  // What a chat template that teaches the format has in it: one of these.
  std::array<std::string_view, 2> signs;
  // Markers may be special tokens, which texts are usually without.
  bool needs_special_tokens = false;
};

// "openai" (Harmony) has no markers: see harmony.h.
std::span<const ToolFormat> tool_formats();
const ToolFormat* find_tool_format(std::string_view name);  // null: there is none
// The format that a chat template teaches; `mentions(sign)`: whether the template has that text.
// Null: it shows tools in another one. A template that knows nothing of tools leaves it to the
// client's prompt, where Hermes' format is usual.
template <class Mentions>
const ToolFormat* tool_format_of_template(Mentions mentions) {
  for (const ToolFormat& format : tool_formats())
    for (const std::string_view sign : format.signs)
      if (!sign.empty() && mentions(sign)) return &format;
  return mentions("tools") ? nullptr : find_tool_format("hermes");
}

}  // namespace nereid::front
