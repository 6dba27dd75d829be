// Finds tool calls in generated text as it streams.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "front/output/tool_formats.h"

namespace nereid::front {

struct FoundMark {
  size_t at = std::string::npos;
  const ToolMarker* marker = nullptr;  // null: there is none
};

// Marked text that is not of the format comes out as text as soon as that is certain; the
// whitespace around calls is dropped. One object per sequence. What comes out does not depend on
// where the text is cut into pieces.
class ToolParser {
 public:
  // `format` has markers. `tools` (or null) outlives this.
  ToolParser(const ToolFormat& format, const json::array* tools)
      : format_(&format), tools_(tools) {}

  // Adds text and calls; `final` releases everything held back. `is_cut`: the model did not end its
  // answer itself.
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
  std::string pending_;                 // text from a possible or certain opening mark on
  const ToolMarker* held_ = nullptr;    // pending_ is of its block, which may go on
  size_t skipped_ = 0;                  // bytes of pending_ in front of what is read
  size_t tried_ = 0;                    // bytes of the block that told too little
  bool may_end_ = false;                // something has come since that ends calls
  bool is_cut_ = false;                 // the end that has come is not the model's
  const ToolMarker* behind_ = nullptr;  // pending_ stands behind a call of this one
  bool closed_ = false;                 // and its closing mark
  std::string blank_;                   // whitespace that a call may follow
  bool begun_ = false;                  // something but blanks has come
  bool called_ = false;
};

// Length of the longest suffix of `text` that begins `mark` without being all of it.
size_t partial_mark(std::string_view text, std::string_view mark);
// The first opening mark of calls, from `from` on, that may stand anywhere in a text; and the
// longest suffix that begins one.
FoundMark find_call_mark(const ToolFormat& format, std::string_view text, size_t from);
size_t partial_call_mark(const ToolFormat& format, std::string_view text);

}  // namespace nereid::front
