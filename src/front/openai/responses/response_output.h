// The output items of a response under construction, and the events of its stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace nereid::front {

class ResponseOutput {
 public:
  // `id_end`: end of the items' ids, before their number. Without `stream` there are no events.
  ResponseOutput(std::string id_end, bool stream) : id_end_(std::move(id_end)), stream_(stream) {}

  void add_reasoning(std::string_view text);
  // `log_probs` are those of a chat: objects with token, logprob, bytes and top_logprobs.
  void add_text(std::string_view text, json::array log_probs = {});
  void begin_call(std::string_view call_id, std::string_view name);
  void add_arguments(std::string_view text);  // of the last call
  // Ends the last item; `status` is "completed" or "incomplete". Output without items
  // gets an empty message.
  void finish(std::string_view status);

  // The items that have ended.
  const json::array& items() const { return items_; }

  // Appends an event: its type and number, then `data`.
  void event(std::string_view type, const json::object& data);
  // The text of events since the last call.
  std::string take_events() { return std::exchange(events_, {}); }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  void begin(Kind kind, json::object item);
  void end(std::string_view status);
  json::object part() const;  // of the open item
  // An event of the open item.
  void item_event(std::string_view type, json::object data);
  void part_event(std::string_view type, json::object data);

  const std::string id_end_;
  const bool stream_;
  json::array items_;
  Kind kind_ = Kind::kNone;  // of the open item
  json::object item_;        // without the growing members:
  std::string text_;         // text or arguments
  json::array log_probs_;
  json::array pending_log_probs_;  // of tokens without text so far
  std::string events_;
  int64_t num_events_ = 0;
};

}  // namespace nereid::front
