// Finds tool calls in generated text as it streams.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "front/output/tool_formats.h"
#include "front/output/tool_json.h"

namespace nereid::front {

// Marked text that is not of the format comes out as text; the whitespace around calls is dropped.
// One object per sequence. What comes out does not depend on where the text is cut into pieces.
class ToolParser {
 public:
  // `format` has markers. `tools` (or null) outlives this.
  ToolParser(const ToolFormat& format, const json::array* tools)
      : format_(&format), tools_(tools) {}

  // Adds text and calls; `final` releases everything held back.
  void push(std::string_view piece, bool final, OutputPart& out);

 private:
  struct Found {
    size_t at = std::string::npos;
    const ToolMarker* marker = nullptr;
  };
  Found find_marker() const;
  void hold(const ToolMarker* marker);
  size_t held_back() const;
  size_t find_mark(std::string_view mark, size_t from);
  size_t find_close(const ToolMarker& marker, bool final);
  void say(std::string_view text, OutputPart& out);
  // False: more text is needed.
  bool take_block(const ToolMarker& marker, bool final, OutputPart& out);

  const ToolFormat* format_;
  const json::array* tools_;
  std::string pending_;               // text from a possible or certain opening mark on
  const ToolMarker* held_ = nullptr;  // pending_ begins with its block, which may go on
  JsonEnd json_end_;                  // of that block
  size_t searched_ = 0;               // bytes of pending_ without its closing mark
  std::string blank_;                 // whitespace that a call may follow
  bool begun_ = false;                // something but blanks has come
  bool called_ = false;
};

// Length of the longest suffix of `text` that begins `mark` without being all of it.
size_t partial_mark(std::string_view text, std::string_view mark);

}  // namespace nereid::front
