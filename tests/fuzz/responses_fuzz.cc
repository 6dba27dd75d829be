// OpenAI's Responses API, from bodies to answers and on from kept ones; see chat_api.h.
#include <string_view>

#include "base/check.h"
#include "chat_api.h"

using namespace nereid;
using namespace nereid::fuzz;

namespace {

std::string part_texts(const json::object& item) {
  std::string out;
  for (const json::value& part : array_at(item, "content"))
    out += text_at(part.as_object(), "text");
  return out;
}

Said said_whole(const json::object& answer) {
  Said out;
  for (const json::value& value : array_at(answer, "output")) {
    const json::object& item = value.as_object();
    const std::string type = text_at(item, "type");
    if (type == "message")
      out.text += part_texts(item);
    else if (type == "reasoning")
      out.thinking += part_texts(item);
    else
      out.calls.emplace_back(text_at(item, "name"), text_at(item, "arguments"));
  }
  return out;
}

// The pieces, joined, equal the response at the end.
Said said_streamed(const std::vector<json::object>& events) {
  Said out;
  int64_t number = 0;
  for (const json::object& event : events) {
    const std::string type = text_at(event, "type");
    NEREID_CHECK(event.at("sequence_number").as_int64() == number++);
    if (type == "response.output_text.delta") out.text += text_at(event, "delta");
    if (type == "response.reasoning_text.delta") out.thinking += text_at(event, "delta");
    if (type == "response.output_item.added") {
      const json::object& item = object_at(event, "item");
      if (text_at(item, "type") == "function_call")
        out.calls.emplace_back(text_at(item, "name"), "");
    }
    if (type == "response.function_call_arguments.delta") {
      NEREID_CHECK(!out.calls.empty());
      out.calls.back().second += text_at(event, "delta");
    }
  }
  NEREID_CHECK(!events.empty());
  const std::string last = text_at(events.back(), "type");
  NEREID_CHECK(last == "response.completed" || last == "response.incomplete");
  NEREID_CHECK(said_whole(object_at(events.back(), "response")) == out);
  return out;
}

constexpr ChatRoute kRoutes[] = {{"/v1/responses", said_whole, said_streamed}};

// A kept response is gone on from, and its items are referred to.
void go_on(size_t tool_format, size_t reasoning_format, const Answer& answer) {
  if (answer.is_stream) return;
  const json::object response = answer.value().as_object();
  if (!response.at("store").as_bool()) return;
  json::object next = {{"input", "x"}, {"previous_response_id", response.at("id")}};
  ask(tool_format, reasoning_format, "/v1/responses", json::serialize(next), "y");
  json::array references;
  for (const json::value& item : array_at(response, "output"))
    references.push_back(
        json::object{{"type", "item_reference"}, {"id", item.as_object().at("id")}});
  references.push_back(json::object{{"role", "user"}, {"content", "x"}});
  next = {{"input", std::move(references)}};
  ask(tool_format, reasoning_format, "/v1/responses", json::serialize(next), "y");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_chat_api({reinterpret_cast<const char*>(data), size}, kRoutes, go_on);
}
