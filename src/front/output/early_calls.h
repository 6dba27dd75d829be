// Tool calls in reasoning without a closing marker before them. Internal to front/output.
#pragma once

#include <string_view>

#include "base/json.h"
#include "front/output/tool_parser.h"

namespace nereid::front {

// Reads reasoning from an opening marker of calls on. Its calls are the answer's, and the reasoning
// ends before the marker, in two cases. A control-token marker: as soon as a call is complete. A
// plain-text marker, which reasoning may quote: if the model ends its answer with the calls and
// never closes the reasoning. Calls of tools outside the request's are text.
class EarlyCalls {
 public:
  // `tools` (or null) must outlive this. `close`: the marker that ends the reasoning.
  EarlyCalls(const ToolFormat& format, const ToolMarker& marker, const json::array* tools,
             std::string_view close)
      : parser_(format, tools), is_control_(marker.is_control), tools_(tools), close_(close) {}

  enum class State { kMore, kCalls, kText };
  // `text` begins with the marker; further calls may only append to it. `final` and `is_cut` as in
  // ToolParser. kCalls: part() and parser() contain the calls read.
  State read(std::string_view text, bool final, bool is_cut);

  // Bytes of the text read.
  size_t num_read() const { return num_read_; }
  // Leading bytes of the text that begin no call.
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
  size_t calls_end_ = 0;  // position at which the last call was complete
  bool is_closed_ = false;
};

}  // namespace nereid::front
