// Streaming Harmony messages; see harmony.h.
#include "front/output/harmony.h"

#include <algorithm>

#include "base/blanks.h"
#include "front/output/tool_literal.h"
#include "front/output/tool_parser.h"

namespace nereid::front {
namespace {

constexpr std::string_view kMessage = "<|message|>", kRecipient = "to=functions.";
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                      "<|channel|>"};
constexpr size_t kMaxHeaderBytes = 1024;

// The tool that a header names; empty: none.
std::string_view recipient_of(std::string_view header) {
  const size_t at = header.find(kRecipient);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + kRecipient.size());
  return header.substr(0, header.find_first_of(" <\n\t"));
}

bool is_analysis(std::string_view header) {
  return header.find("analysis") != std::string_view::npos && recipient_of(header).empty();
}

}  // namespace

void HarmonyParser::say(std::string_view text, OutputPart& out) {
  if (!recipient_of(header_).empty()) {
    call_ += text;
  } else if (is_analysis(header_)) {
    out.reasoning += text;
  } else {
    out.text += text;
  }
}

void HarmonyParser::end_message(OutputPart& out, bool is_cut) {
  const std::string_view tool = recipient_of(header_);
  // Without the model's own end, arguments may have been to come.
  const bool is_begun = is_cut && without_blanks(call_).empty();
  if (!tool.empty() && !is_begun) {
    if (auto arguments = object_of(call_))
      out.calls.push_back({std::string(tool), *std::move(arguments)});
    else
      out.text += call_;
  }
  call_.clear();
  header_.clear();
  in_header_ = true;
}

void HarmonyParser::push(std::string_view piece, bool final, OutputPart& out, bool is_cut) {
  pending_ += piece;
  for (;;) {
    if (in_header_) {
      const size_t at = std::string_view(pending_).substr(0, kMaxHeaderBytes).find(kMessage);
      if (at == std::string::npos) {
        if (!final && pending_.size() < kMaxHeaderBytes) return;
        // Text outside of the format is content, except a header without a message.
        if (pending_.size() < kMaxHeaderBytes &&
            (pending_.starts_with("<|") || pending_.find("<|channel|>") != std::string::npos))
          pending_.clear();
        in_header_ = false;
        continue;
      }
      header_ = pending_.substr(0, at);
      pending_.erase(0, at + kMessage.size());
      in_header_ = false;
    }
    size_t at = std::string::npos, length = 0, keep = 0;
    for (const std::string_view end : kEnds) {
      if (const size_t found = pending_.find(end); found < at) at = found, length = end.size();
      keep = std::max(keep, partial_mark(pending_, end));
    }
    if (at == std::string::npos) {
      if (final) keep = 0;
      say(std::string_view(pending_).substr(0, pending_.size() - keep), out);
      pending_.erase(0, pending_.size() - keep);
      if (final) end_message(out, is_cut);
      return;
    }
    say(std::string_view(pending_).substr(0, at), out);
    pending_.erase(0, at + length);
    end_message(out);
  }
}

}  // namespace nereid::front
