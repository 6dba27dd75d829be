// Anthropic's Messages API, from bodies to answers; see chat_api.h.
#include <cmath>
#include <string>

#include "base/check.h"
#include "chat_api.h"

using namespace nereid;
using namespace nereid::fuzz;

namespace {

// JSON text that is equal for doubles that differ only by the rounding of reading and writing.
std::string rounded(const json::value& value) {
  std::string out;
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object)
      out += json::serialize(json::string(key)) + ":" + rounded(member) + ",";
    return "{" + out + "}";
  }
  if (const json::array* list = value.if_array()) {
    for (const json::value& item : *list) out += rounded(item) + ",";
    return "[" + out + "]";
  }
  if (!value.is_double()) return json::serialize(value);
  return std::isnan(value.get_double()) ? "null" : fmt::format("{:.6g}", value.get_double());
}

Said said_whole(const json::object& answer) {
  Said out;
  NEREID_CHECK(text_at(answer, "type") == "message" && !text_at(answer, "stop_reason").empty());
  for (const json::value& value : array_at(answer, "content")) {
    const json::object& block = value.as_object();
    const std::string type = text_at(block, "type");
    if (type == "text")
      out.text += text_at(block, "text");
    else if (type == "thinking")
      out.thinking += text_at(block, "thinking");
    else
      out.calls.emplace_back(text_at(block, "name"), rounded(object_at(block, "input")));
  }
  return out;
}

// Blocks are numbered and do not overlap.
class StreamReader {
 public:
  void read(const json::object& event) {
    const std::string type = text_at(event, "type");
    NEREID_CHECK(begun_ != (type == "message_start"));
    NEREID_CHECK(!ended_);
    begun_ = true;
    if (type.starts_with("content_block_")) NEREID_CHECK(event.at("index").as_int64() == index_);
    if (type == "content_block_start")
      start(object_at(event, "content_block"));
    else if (type == "content_block_delta")
      add(object_at(event, "delta"));
    else if (type == "content_block_stop")
      stop();
    else if (type == "message_delta")
      NEREID_CHECK(!text_at(object_at(event, "delta"), "stop_reason").empty());
    else
      NEREID_CHECK(type == "message_start" || type == "message_stop");
    ended_ = type == "message_stop";
  }
  Said take() {
    NEREID_CHECK(ended_ && kind_.empty());
    return std::move(said_);
  }

 private:
  void start(const json::object& block) {
    NEREID_CHECK(kind_.empty());
    kind_ = text_at(block, "type");
    if (kind_ == "tool_use") said_.calls.emplace_back(text_at(block, "name"), "");
  }
  void add(const json::object& delta) {
    const std::string type = text_at(delta, "type");
    if (type == "text_delta") {
      NEREID_CHECK(kind_ == "text");
      said_.text += text_at(delta, "text");
    } else if (type == "thinking_delta") {
      NEREID_CHECK(kind_ == "thinking");
      said_.thinking += text_at(delta, "thinking");
    } else {
      NEREID_CHECK(type == "input_json_delta" && kind_ == "tool_use");
      said_.calls.back().second += text_at(delta, "partial_json");
    }
  }
  // A client reads the arguments of a call as an object. A call whose arguments are none, since it
  // was cut, is left out of an answer that is sent whole.
  void stop() {
    NEREID_CHECK(!kind_.empty());
    if (kind_ == "tool_use") {
      const auto input = parse_json(said_.calls.back().second, 128);
      if (input.ok() && input->is_object())
        said_.calls.back().second = rounded(*input);
      else
        said_.calls.pop_back();
    }
    kind_.clear(), ++index_;
  }

  Said said_;
  std::string kind_;
  int64_t index_ = 0;
  bool begun_ = false, ended_ = false;
};

Said said_streamed(const std::vector<json::object>& events) {
  StreamReader reader;
  for (const json::object& event : events) reader.read(event);
  return reader.take();
}

constexpr ChatRoute kRoutes[] = {{"/v1/messages", said_whole, said_streamed}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return run_chat_api({reinterpret_cast<const char*>(data), size}, kRoutes);
}
