// Finds tool calls in streamed text.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "front/output/tool_formats.h"

namespace nereid::front {

struct FoundMark {
  size_t at = std::string::npos;
  const ToolMarker* marker = nullptr;  // null: none
};

// Marked text that does not have the format becomes content as soon as that is certain; white space
// around calls is dropped. One object per sequence. The result does not depend on the division of
// the text into pieces.
class ToolParser {
 public:
  // `format` has markers. `tools` (or null) must outlive this.
  ToolParser(const ToolFormat& format, const json::array* tools)
      : format_(&format), tools_(tools) {}

  // Adds text and calls; `final` releases all held-back text. `is_cut`: the answer was ended by a
  // limit, not by the model.
  void push(std::string_view piece, bool final, OutputPart& out, bool is_cut = false);

 private:
  FoundMark find_marker() const;
  size_t held_back() const;
  void say(std::string_view text, OutputPart& out);
  void hold(const ToolMarker* marker, size_t skipped);
  // These return false when more text is needed.
  bool look_for_block(bool final, OutputPart& out);
  bool read_block(bool final, OutputPart& out);
  bool skip_repeated_mark(bool final);
  bool go_on_behind_call(bool final);
  bool may_be_certain(size_t block_bytes) const;

  const ToolFormat* format_;
  const json::array* tools_;
  std::string pending_;                 // text from a possible or certain opening marker on
  const ToolMarker* held_ = nullptr;    // pending_ is in its block, which may continue
  size_t skipped_ = 0;                  // bytes of pending_ before the text to read
  size_t tried_ = 0;                    // bytes of the block at the last attempt
  bool may_end_ = false;                // text that can end calls has come since
  bool is_cut_ = false;                 // the answer was ended by a limit
  const ToolMarker* behind_ = nullptr;  // pending_ follows a call with this marker
  bool closed_ = false;                 // and its closing marker
  std::string blank_;                   // white space that a call may follow
  bool begun_ = false;                  // non-blank text has come
  bool called_ = false;
};

// Length of the longest suffix of `text` that is a proper prefix of `mark`.
size_t partial_mark(std::string_view text, std::string_view mark);
// The first opening marker of calls, from `from` on, that may be anywhere in a text; and the
// longest suffix that begins one.
FoundMark find_call_mark(const ToolFormat& format, std::string_view text, size_t from);
size_t partial_call_mark(const ToolFormat& format, std::string_view text);

}  // namespace nereid::front
