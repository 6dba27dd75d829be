// Streaming tool calls; see tool_parser.h.
#include "front/output/tool_parser.h"

#include <algorithm>

#include "base/blanks.h"

namespace nereid::front {
namespace {

// A longer call is text, which bounds memory and parse time.
constexpr size_t kMaxCallBytes = 128 << 10;
// Text between calls, and superfluous braces.
constexpr std::string_view kBehindCall = " \t\r\n;,}]";

bool is_within_character(char c) { return (c & 0xC0) == 0x80; }

}  // namespace

size_t partial_mark(std::string_view text, std::string_view mark) {
  if (mark.empty()) return 0;
  for (size_t n = std::min(text.size(), mark.size() - 1); n > 0; --n)
    if (text.ends_with(mark.substr(0, n))) return n;
  return 0;
}

FoundMark find_call_mark(const ToolFormat& format, std::string_view text, size_t from) {
  FoundMark first;
  for (const ToolMarker& marker : format.markers) {
    if (!marker.read || marker.only_first) continue;
    if (const size_t at = text.find(marker.open, from); at < first.at) first = {at, &marker};
  }
  return first;
}

size_t partial_call_mark(const ToolFormat& format, std::string_view text) {
  size_t most = 0;
  for (const ToolMarker& marker : format.markers)
    if (marker.read && !marker.only_first) most = std::max(most, partial_mark(text, marker.open));
  return most;
}

FoundMark ToolParser::find_marker() const {
  FoundMark first;
  for (const ToolMarker& marker : format_->markers) {
    size_t at = std::string::npos;
    if (!marker.only_first) {
      at = pending_.find(marker.open);
    } else if (!begun_) {
      at = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
      const std::string_view rest = std::string_view(pending_).substr(at);
      if (rest.empty() || !rest.starts_with(marker.open)) at = std::string::npos;
    }
    if (at < first.at) first = {at, &marker};
  }
  return first;
}

size_t ToolParser::held_back() const {
  size_t most = 0;
  for (const ToolMarker& marker : format_->markers) {
    size_t held = partial_mark(pending_, marker.open);
    // At the start of the text only.
    if (marker.only_first &&
        (begun_ || pending_.find_first_not_of(kBlanks) + held < pending_.size()))
      held = 0;
    most = std::max(most, held);
  }
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

void ToolParser::hold(const ToolMarker* marker, size_t skipped) {
  held_ = marker;
  skipped_ = skipped;
  tried_ = 0;
  may_end_ = true;
}

bool ToolParser::look_for_block(bool final, OutputPart& out) {
  const FoundMark found = find_marker();
  if (!found.marker) {
    const size_t keep = final ? 0 : held_back();
    say(std::string_view(pending_).substr(0, pending_.size() - keep), out);
    pending_.erase(0, pending_.size() - keep);
    return false;
  }
  const ToolMarker& marker = *found.marker;
  say(std::string_view(pending_).substr(0, found.at), out);
  pending_.erase(0, found.at + (marker.read ? 0 : marker.open.size()));
  if (marker.read) hold(&marker, marker.keeps_open ? 0 : marker.open.size());
  return true;
}

// Whether to parse a block again: a long one when text that can end calls has come, and at growing
// intervals, so that all attempts together take as long as a few of the last.
bool ToolParser::may_be_certain(size_t block_bytes) const {
  constexpr size_t kShortBytes = 1024, kLooks = 64;
  return block_bytes <= kShortBytes || (may_end_ && block_bytes - tried_ >= tried_ / kLooks);
}

// A duplicate opening marker counts once.
bool ToolParser::skip_repeated_mark(bool final) {
  const std::string_view open = held_->open, all(pending_);
  if (held_->only_first || !all.starts_with(open)) return true;
  for (;;) {
    const size_t end = skipped_ + (held_->keeps_open ? open.size() : 0);
    const size_t at = all.find_first_not_of(kBlanks, end);
    if (at == all.npos || at + open.size() > kMaxCallBytes / 2) return true;
    const std::string_view rest = all.substr(at);
    if (!rest.starts_with(open)) return final || !open.starts_with(rest);
    skipped_ = at + (held_->keeps_open ? 0 : open.size());
  }
}

bool ToolParser::read_block(bool final, OutputPart& out) {
  const bool fits = pending_.size() <= kMaxCallBytes;
  if (!skip_repeated_mark(final) && fits) return false;
  const std::string_view block =
      std::string_view(pending_).substr(0, kMaxCallBytes).substr(skipped_);
  if (fits && !final && !may_be_certain(block.size())) return false;
  CallsRead read = held_->read(*held_, block, final && fits, tools_);
  if (read.needs_end && is_cut_) read = {CallsRead::State::kText, block.size()};
  if (read.state == CallsRead::State::kMore && fits) {
    tried_ = block.size();
    may_end_ = false;
    return false;
  }
  size_t length = skipped_ + read.length;
  if (read.state == CallsRead::State::kMore) {
    length = kMaxCallBytes;
    while (is_within_character(pending_[length])) --length;
  }
  if (read.state == CallsRead::State::kCalls) {
    for (ToolCall& call : read.calls) out.calls.push_back(std::move(call));
    begun_ = called_ = true;
    blank_.clear();
    behind_ = held_;
    closed_ = false;
  } else {
    length = std::max<size_t>(length, 1);
    while (length < pending_.size() && is_within_character(pending_[length])) ++length;
    say(std::string_view(pending_).substr(0, length), out);
  }
  pending_.erase(0, length);
  held_ = nullptr;
  return true;
}

bool ToolParser::go_on_behind_call(bool final) {
  const size_t at = pending_.find_first_not_of(kBehindCall);
  if (at == std::string::npos) {
    if (!final) return false;
    pending_.clear();
    behind_ = nullptr;
    return true;
  }
  const std::string_view rest = std::string_view(pending_).substr(at);
  bool may_close = false;
  for (const ToolMarker& marker : format_->markers) {
    if (marker.close.empty()) continue;
    if (rest.starts_with(marker.close)) {
      pending_.erase(0, at + marker.close.size());
      closed_ = true;
      return true;
    }
    may_close |= !final && marker.close.starts_with(rest);
  }
  if (may_close) return false;
  if (behind_->repeats && !closed_ && (rest.front() == '{' || rest.front() == '['))
    hold(behind_, at);
  behind_ = nullptr;
  return true;
}

void ToolParser::push(std::string_view piece, bool final, OutputPart& out, bool is_cut) {
  pending_ += piece;
  is_cut_ = is_cut;
  may_end_ |= piece.find_first_of(">}])`") != piece.npos;
  while (held_     ? read_block(final, out)
         : behind_ ? go_on_behind_call(final)
                   : look_for_block(final, out)) {
  }
  if (!final) return;
  if (!called_) out.text += blank_;
  blank_.clear();
}

}  // namespace nereid::front
