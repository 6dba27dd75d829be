// Items of a conversation (the input and output of /v1/responses) as messages of a chat.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/json.h"
#include "front/openai/error.h"
#include "front/openai/response_store.h"

namespace nereid::front {

// The items that "input" gives, a text or an array: each with type and id, texts of messages as
// parts, references replaced by the items in `kept` that they name. New ids end with `id_end`
// and a number.
std::variant<json::array, ApiError> read_input_items(const json::value& input,
                                                     const OwnResponses& kept,
                                                     std::string_view id_end);

// Items in order to messages: one of the assistant has the reasoning, text and calls that follow
// each other.
class ChatMessages {
 public:
  // `where` names the item in errors.
  std::optional<ApiError> add(const json::object& item, const std::string& where);
  json::array take();

 private:
  std::optional<ApiError> add_message(const json::object& item, const std::string& where);
  void add_reasoning(const json::object& item);
  void add_call(const json::object& item);
  std::optional<ApiError> add_output(const json::object& item, const std::string& where);
  void end_assistant();

  json::array out_;
  std::string reasoning_, text_;  // of the assistant's message under way
  bool has_text_ = false;
  json::array calls_;
  std::unordered_set<std::string> call_ids_;
};

}  // namespace nereid::front
