// Items of a conversation (the input and output of /v1/responses) as messages of a chat.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/json.h"
#include "front/openai/error.h"
#include "front/openai/responses/response_store.h"

namespace nereid::front {

// The items of "input", a text or an array: each with type and id, texts of messages as parts,
// references replaced by the stored items in `kept`. New ids end with `id_end` and a number.
std::variant<json::array, ApiError> read_input_items(const json::value& input,
                                                     const OwnerResponses& kept,
                                                     std::string_view id_end);

// Collects items into messages: consecutive reasoning, text and calls form one assistant message.
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
  std::string reasoning_, text_;  // of the open assistant message
  bool has_text_ = false;
  json::array calls_;
  std::unordered_set<std::string> call_ids_;
};

}  // namespace nereid::front
