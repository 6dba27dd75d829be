// Streaming tool calls; see tool_parser.h.
#include "front/output/tool_parser.h"

#include <algorithm>

#include "base/blanks.h"

namespace nereid::front {
namespace {

// A call longer than this is text; keeps memory and parse time bounded.
constexpr size_t kMaxCallBytes = 128 << 10;

}  // namespace

size_t partial_mark(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

ToolParser::Found ToolParser::find_marker() const {
  Found first;
  for (const ToolMarker& marker : format_->markers) {
    if (held_) {  // another one may open with more of the same text
      const bool may_open = !marker.only_first || !begun_;
      if (may_open && pending_.starts_with(marker.open)) return {0, &marker};
      continue;
    }
    size_t at = std::string::npos;
    if (!marker.only_first) {
      at = pending_.find(marker.open);
    } else if (!begun_) {
      at = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
      if (!std::string_view(pending_).substr(at).starts_with(marker.open)) at = std::string::npos;
    }
    if (at < first.at) first = {at, &marker};
  }
  return first;
}

size_t ToolParser::held_back() const {
  size_t most = 0;
  for (const ToolMarker& marker : format_->markers)
    if (!marker.only_first) most = std::max(most, partial_mark(pending_, marker.open));
  return most;
}

void ToolParser::say(std::string_view text, OutputPart& out) {
  blank_ += text;
  const size_t end = blank_.find_last_not_of(kBlanks);
  if (end == std::string::npos) return;
  begun_ = true;
  out.text += blank_.substr(0, end + 1);
  blank_.erase(0, end + 1);
}

void ToolParser::hold(const ToolMarker* marker) {
  if (marker == held_) return;
  held_ = marker;
  json_end_ = {};
  searched_ = 0;
}

// pending_.find() that goes on where the last one for the block found nothing.
size_t ToolParser::find_mark(std::string_view mark, size_t from) {
  const size_t last = searched_ - std::min(searched_, mark.size() - 1);
  const size_t at = pending_.find(mark, std::max(from, last));
  if (at == std::string::npos) searched_ = pending_.size();
  return at;
}

// Behind the JSON value that a block begins with: its texts may hold the mark. Of a value that
// never ends the first mark counts.
size_t ToolParser::find_close(const ToolMarker& marker, bool final) {
  if (marker.close.empty()) return std::string::npos;
  const size_t from = marker.open.size();
  const size_t begin = std::min(pending_.find_first_not_of(kBlanks, from), pending_.size());
  const std::string_view body = std::string_view(pending_).substr(begin);
  if (!body.starts_with('{') && !body.starts_with('[')) return find_mark(marker.close, from);
  const size_t length = json_end_.find(body);
  if (length > 0) return find_mark(marker.close, begin + length);
  const bool may_end = !final && pending_.size() <= kMaxCallBytes;
  return may_end ? std::string::npos : pending_.find(marker.close, from);
}

bool ToolParser::take_block(const ToolMarker& marker, bool final, OutputPart& out) {
  if (marker.is_dropped) {
    pending_.erase(0, marker.open.size());
    return true;
  }
  const size_t from = marker.open.size();
  const size_t close = find_close(marker, final);
  if (close == std::string::npos && !final && pending_.size() <= kMaxCallBytes) return false;
  const bool ends = close != std::string::npos;
  const std::string block = pending_.substr(0, ends ? close + marker.close.size() : close);
  pending_.erase(0, block.size());
  const size_t begin = marker.keeps_open ? 0 : from;
  const std::string_view body =
      std::string_view(block).substr(begin, (ends ? close : block.size()) - begin);
  auto calls = block.size() <= kMaxCallBytes ? format_->read(body, tools_) : std::nullopt;
  if (!calls) {
    say(block, out);
    return true;
  }
  for (ToolCall& call : *calls) out.calls.push_back(std::move(call));
  begun_ = called_ = true;
  blank_.clear();
  return true;
}

void ToolParser::push(std::string_view piece, bool final, OutputPart& out) {
  pending_ += piece;
  for (;;) {
    const Found found = find_marker();
    if (!found.marker) break;
    say(std::string_view(pending_).substr(0, found.at), out);
    pending_.erase(0, found.at);
    hold(found.marker);
    if (!take_block(*found.marker, final, out)) return;
    hold(nullptr);
  }
  const size_t keep = final ? 0 : held_back();
  say(std::string_view(pending_).substr(0, pending_.size() - keep), out);
  pending_.erase(0, pending_.size() - keep);
  if (!final) return;
  if (!called_) out.text += blank_;
  blank_.clear();
}

}  // namespace nereid::front
