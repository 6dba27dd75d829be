// See response_output.h. Source: platform.openai.com/docs/api-reference/responses-streaming.
#include "front/openai/responses/response_output.h"

#include <utility>

#include "front/translate/translated_exchange.h"

namespace nereid::front {
namespace {

constexpr const char* kInProgress = "in_progress";

}  // namespace

void ResponseOutput::event(std::string_view type, const json::object& data) {
  if (!stream_) return;
  json::object whole = {{"type", type}, {"sequence_number", num_events_++}};
  for (const auto& [key, value] : data) whole[key] = value;
  events_ += named_event(type, whole);
}

void ResponseOutput::item_event(std::string_view type, json::object data) {
  if (!stream_) return;
  data["item_id"] = item_.at("id");
  data["output_index"] = items_.size();
  event(type, data);
}

void ResponseOutput::part_event(std::string_view type, json::object data) {
  data["content_index"] = 0;
  item_event(type, std::move(data));
}

json::object ResponseOutput::part() const {
  if (kind_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", json::array()},
          {"logprobs", log_probs_}};
}

void ResponseOutput::begin(Kind kind, json::object item) {
  if (kind_ == kind && kind != Kind::kCall) return;
  end("completed");
  kind_ = kind;
  item_ = std::move(item);
  const char* prefix = kind == Kind::kReasoning ? "rs_" : kind == Kind::kCall ? "fc_" : "msg_";
  item_["id"] = fmt::format("{}{}_{}", prefix, id_end_, items_.size());
  item_["status"] = kInProgress;
  event("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
  if (kind != Kind::kCall) part_event("response.content_part.added", {{"part", part()}});
}

void ResponseOutput::add_reasoning(std::string_view text) {
  if (text.empty()) return;
  begin(Kind::kReasoning,
        {{"type", "reasoning"}, {"summary", json::array()}, {"content", json::array()}});
  text_ += text;
  part_event("response.reasoning_text.delta", {{"delta", text}});
}

void ResponseOutput::add_text(std::string_view text, json::array log_probs) {
  for (json::value& one : log_probs) pending_log_probs_.push_back(std::move(one));
  if (text.empty()) return;
  begin(Kind::kMessage, {{"type", "message"}, {"role", "assistant"}, {"content", json::array()}});
  text_ += text;
  for (const json::value& one : pending_log_probs_) log_probs_.push_back(one);
  part_event("response.output_text.delta",
             {{"delta", text}, {"logprobs", std::exchange(pending_log_probs_, {})}});
}

void ResponseOutput::begin_call(std::string_view call_id, std::string_view name) {
  begin(Kind::kCall,
        {{"type", "function_call"}, {"call_id", call_id}, {"name", name}, {"arguments", ""}});
}

void ResponseOutput::add_arguments(std::string_view text) {
  if (kind_ != Kind::kCall || text.empty()) return;
  text_ += text;
  item_event("response.function_call_arguments.delta", {{"delta", text}});
}

void ResponseOutput::end(std::string_view status) {
  if (kind_ == Kind::kNone) return;
  if (kind_ == Kind::kMessage)
    for (json::value& one : std::exchange(pending_log_probs_, {}))
      log_probs_.push_back(std::move(one));
  if (kind_ == Kind::kCall) {
    item_["arguments"] = text_;
    item_event("response.function_call_arguments.done",
               {{"name", item_.at("name")}, {"arguments", text_}});
  } else {
    json::object done = {{"text", text_}};
    if (kind_ == Kind::kMessage) done["logprobs"] = log_probs_;
    part_event(
        kind_ == Kind::kMessage ? "response.output_text.done" : "response.reasoning_text.done",
        std::move(done));
    part_event("response.content_part.done", {{"part", part()}});
    item_["content"] = json::array{part()};
  }
  item_["status"] = status;
  event("response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
  items_.push_back(std::exchange(item_, {}));
  text_.clear(), log_probs_.clear();
  kind_ = Kind::kNone;
}

void ResponseOutput::finish(std::string_view status) {
  if (items_.empty() && kind_ == Kind::kNone)
    begin(Kind::kMessage, {{"type", "message"}, {"role", "assistant"}, {"content", json::array()}});
  // A call with all of its arguments is complete, however the response ends.
  const bool is_whole_call = kind_ == Kind::kCall && parse_json(text_).ok();
  end(is_whole_call ? "completed" : status);
}

}  // namespace nereid::front
