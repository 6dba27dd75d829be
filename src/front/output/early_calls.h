// Tool calls in reasoning that is not closed in front of them. Internal to front/output.
#pragma once

#include <string_view>

#include "base/json.h"
#include "front/output/tool_parser.h"

namespace nereid::front {

// Reads reasoning from an opening mark of calls on. Its calls are the answer's, and the reasoning
// ends in front of the mark, in two cases. The mark is a control token: as soon as a call is
// complete. It is plain text, which reasoning may quote: where the model ends its answer with the
// calls, and the reasoning is not closed before. Calls of a tool that the request does not have are
// text.
class EarlyCalls {
 public:
  // `tools` (or null) outlives this. `close`: the mark that ends the reasoning.
  EarlyCalls(const ToolFormat& format, const ToolMarker& marker, const json::array* tools,
             std::string_view close)
      : parser_(format, tools), is_control_(marker.is_control), tools_(tools), close_(close) {}

  enum class State { kMore, kCalls, kText };
  // `text` begins with the mark; of what was given before it has more at its end. `final` and
  // `is_cut` as in ToolParser. kCalls: part() and parser() have taken what was read().
  State read(std::string_view text, bool final, bool is_cut);

  // Bytes of the text that have been read.
  size_t num_read() const { return num_read_; }
  // Those of a text, from its beginning, that begin no call.
  size_t num_text() const;
  OutputPart& part() { return part_; }
  ToolParser& parser() { return parser_; }

 private:
  bool has_unknown_call(size_t num_known) const;

  ToolParser parser_;
  OutputPart part_;
  const bool is_control_;
  const json::array* tools_;
  const std::string_view close_;
  size_t num_read_ = 0;
  size_t calls_end_ = 0;  // where the last call was known to be one
  bool is_closed_ = false;
};

}  // namespace nereid::front
