#include "front/openai/pictures/picture_prompt.h"

#include <string>
#include <string_view>

#include "base/json_members.h"

namespace nereid::front {
namespace {

// Calls `visit` for each string in `value`.
template <class Visit>
void each_string(const json::value& value, const Visit& visit) {
  if (const json::string* const text = value.if_string()) visit(std::string_view(*text));
  if (const json::array* const list = value.if_array())
    for (const json::value& item : *list) each_string(item, visit);
  if (const json::object* const object = value.if_object())
    for (const auto& [key, item] : *object) {
      visit(std::string_view(key));
      each_string(item, visit);
    }
}

const json::array* parts_of(const json::value& message) {
  return member_or_null(message, "content").if_array();
}

bool is_picture(const json::value& part) { return text_member(part, "type") == "image"; }

}  // namespace

size_t PromptPictures::num_bytes() const {
  size_t out = 0;
  for (const PicturePtr& picture : pictures) out += picture->patches.values.size() * sizeof(float);
  return out;
}

std::optional<ApiError> check_no_marks(const json::object& context,
                                       const vision::PictureMarks& marks) {
  bool has_marks = false;
  each_string(context, [&](std::string_view text) { has_marks = has_marks || marks.is_in(text); });
  if (!has_marks) return std::nullopt;
  return ApiError{400,
                  fmt::format("'messages': the texts have '{}' or '{}', which stands for a picture "
                              "in prompts of this model: leave it out, and send pictures as parts",
                              marks.marker, marks.token),
                  "messages"};
}

std::vector<size_t> pictures_in(const json::object& context) {
  std::vector<size_t> out;
  for (const json::value& message : array_member(context, "messages"))
    if (const json::array* const parts = parts_of(message))
      for (const json::value& part : *parts)
        if (is_picture(part)) out.push_back(static_cast<size_t>(integer_member(part, "picture")));
  return out;
}

json::object with_marks_in_texts(const json::object& context, const vision::PictureMarks& marks) {
  json::object out = context;
  for (json::value& message : out.at("messages").as_array()) {
    const json::array* const parts = parts_of(message);
    if (!parts) continue;
    std::string shown, texts;
    for (const json::value& part : *parts) {
      if (is_picture(part))
        shown += marks.in_text + "\n";
      else
        texts += (texts.empty() ? "" : "\n") + text_member(part, "text");
    }
    message.as_object()["content"] = shown + texts;
  }
  return out;
}

}  // namespace nereid::front
