// Code shared by the fuzz targets of the chat APIs. An input is a client's request and a model's
// output: a byte for the format of tool calls, one for that of reasoning, one for the route (a
// small letter where a seed is answered, a capital where it is refused), a JSON body, a line "---",
// words. All of the front's handlers run: request to chat, chat to prompt and tokens, the words'
// tokens from a scripted engine (front/testing/fake_triton.h), text, calls and reasoning of them,
// the API's answer. It is asked for whole and as a stream; both must be equal.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "front/http/message.h"

namespace nereid::fuzz {

// The contents of an answer, in any form: compared between a whole one and a stream.
struct Said {
  std::string text, thinking;
  std::vector<std::pair<std::string, std::string>>
      calls;  // name and arguments, as the API has them

  bool operator==(const Said&) const = default;
};

// One answer as a client sees it. Members that are not there are a finding.
struct Answer {
  int status = 0;
  bool is_stream = false;
  std::string body;

  json::value value() const;  // of a JSON body
  // The objects of its events, "[DONE]" left out; of its lines, where it has no events.
  std::vector<json::object> events() const;
};

struct ChatRoute {
  const char* path;
  // Either kind of an answer with the status 200; null: it is looked at for its status alone.
  Said (*said_whole)(const json::object& answer) = nullptr;
  Said (*said_streamed)(const std::vector<json::object>& events) = nullptr;
  bool streams_all = true;     // whatever is answered whole
  bool always_streams = true;  // else an answer without tokens is whole also as a stream
};

// Sends the request to the front and waits for its answer.
Answer ask(size_t tool_format, size_t reasoning_format, const char* path, std::string body,
           std::string_view words);

// Runs an input on the route that it names. 0, or -1 when a seed is not answered as it should be.
// `look` (or null) gets the answers with a status of 200.
int run_chat_api(std::string_view input, std::span<const ChatRoute> routes,
                 void (*look)(size_t tool_format, size_t reasoning_format,
                              const Answer&) = nullptr);

// Members whose absence is a finding.
const json::object& object_at(const json::object& object, std::string_view key);
const json::array& array_at(const json::object& object, std::string_view key);
std::string text_at(const json::object& object, std::string_view key);
// "" where it is absent or null.
std::string text_or_none(const json::object& object, std::string_view key);

}  // namespace nereid::fuzz
