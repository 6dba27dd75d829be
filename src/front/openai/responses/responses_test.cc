#include "front/openai/responses/responses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "front/openai/responses/response_output.h"
#include "front/openai/responses/responses_input.h"

namespace nereid::front {
namespace {

using testing::ElementsAre;

constexpr const char* kIdEnd = "0123456789abcdef0123456789abcdef";

json::object parsed_object(std::string_view text) { return parse_json(text)->get_object(); }

OwnerResponses a_store(size_t bytes = 1 << 20) {
  return {std::make_shared<StoredResponses>(bytes), "owner"};
}
Parsed<ResponsesRequest> read_body(std::string_view body, const OwnerResponses& kept = a_store()) {
  return read_responses_request(parsed_object(body), kept, kIdEnd);
}
ResponsesRequest accepted(std::string_view body, const OwnerResponses& kept = a_store()) {
  auto r = read_body(body, kept);
  const auto* error = std::get_if<ApiError>(&r);
  EXPECT_EQ(error, nullptr) << error->message;
  return error ? ResponsesRequest() : std::get<ResponsesRequest>(std::move(r));
}
json::object chat_body(std::string_view body, const OwnerResponses& kept = a_store()) {
  return parsed_object(accepted(body, kept).chat);
}
ApiError refused(std::string_view body, const OwnerResponses& kept = a_store()) {
  const auto r = read_body(body, kept);
  const auto* error = std::get_if<ApiError>(&r);
  return error ? *error : ApiError{200, "accepted", "", ""};
}

TEST(StoredResponses, OwnersAreApartAndTheLeastUsedGoes) {
  StoredResponses store(1 << 20, 2);
  store.put("a", "resp_1", {"one", "[]"});
  store.put("a", "resp_2", {"two", "[]"});
  EXPECT_EQ(store.get("b", "resp_1"), nullptr);
  EXPECT_FALSE(store.erase("b", "resp_1"));
  ASSERT_NE(store.get("a", "resp_1"), nullptr);  // counts as a use
  store.put("a", "resp_3", {"three", "[]"});
  EXPECT_EQ(store.get("a", "resp_2"), nullptr);
  EXPECT_EQ(store.get("a", "resp_1")->object, "one");
  EXPECT_TRUE(store.erase("a", "resp_1"));
  EXPECT_EQ(store.get("a", "resp_1"), nullptr);
  EXPECT_TRUE(store.erase("a", "resp_3"));
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(StoredResponses, BytesAreBounded) {
  constexpr size_t kBytes = 100000;
  StoredResponses store(kBytes);
  for (int i = 0; i < 100; ++i) {
    store.put("", fmt::format("resp_{}", i), {std::string(5000, 'x'), std::string(1000, 'y')});
    EXPECT_LE(store.bytes(), kBytes);
  }
  EXPECT_NE(store.get("", "resp_99"), nullptr);
  EXPECT_EQ(store.get("", "resp_0"), nullptr);
  store.put("", "resp_large", {std::string(kBytes, 'x'), ""});
  EXPECT_EQ(store.get("", "resp_large"), nullptr);
  EXPECT_NE(store.get("", "resp_99"), nullptr);
  store.put("", "resp_99", {"again", ""});
  EXPECT_EQ(store.get("", "resp_99")->object, "again");
}

TEST(ResponsesRequest, BecomesAChat) {
  const json::object chat = chat_body(R"({"model": "m", "instructions": "be kind", "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
      {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "t"}]},
      {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "d", "name": "g", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "c", "output": "4"},
      {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "5"}]}],
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": null}],
      "tool_choice": {"type": "function", "name": "f"}, "max_output_tokens": 7, "stream": true, "top_k": 3,
      "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
      "reasoning": {"effort": "low"}, "include": ["message.output_text.logprobs"], "top_logprobs": 2})");
  EXPECT_EQ(chat.at("messages"), parse_json(R"([
      {"role": "system", "content": "be kind"}, {"role": "user", "content": "a\nb"},
      {"role": "assistant", "content": "t", "reasoning_content": "r", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "d", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "4"},
      {"role": "tool", "tool_call_id": "d", "content": "5"}])")
                                     .value());
  EXPECT_EQ(chat.at("tools"), parse_json(R"([{"type": "function", "function":
      {"name": "f", "parameters": {"type": "object"}}}])")
                                  .value());
  EXPECT_EQ(chat.at("tool_choice").at("function").at("name").as_string(), "f");
  EXPECT_EQ(chat.at("max_completion_tokens").as_int64(), 7);
  EXPECT_EQ(chat.at("top_k").as_int64(), 3);
  EXPECT_EQ(chat.at("response_format").at("json_schema").at("name").as_string(), "n");
  EXPECT_EQ(chat.at("reasoning_effort").as_string(), "low");
  EXPECT_TRUE(chat.at("logprobs").as_bool());
  EXPECT_EQ(chat.at("top_logprobs").as_int64(), 2);
  EXPECT_TRUE(chat.at("stream_options").at("include_usage").as_bool());
  EXPECT_TRUE(chat.contains("top_k"));
}

TEST(ResponsesRequest, TextIsAMessageOfTheUser) {
  const ResponsesRequest r = accepted(R"({"input": "hi", "new_field": 1, "text": {"newer": 1}})");
  EXPECT_EQ(parsed_object(r.chat).at("messages"),
            parse_json(R"([{"role": "user", "content": "hi"}])").value());
  EXPECT_THAT(r.unknown, ElementsAre("new_field", "text.newer"));
  EXPECT_TRUE(r.is_kept);
  EXPECT_EQ(parse_json(r.items)->at(0).at("content").at(0).at("text").as_string(), "hi");
  EXPECT_FALSE(accepted(R"({"input": "hi", "store": false})").is_kept);
  EXPECT_FALSE(accepted(R"({"input": "hi"})", a_store(0)).is_kept);
}

TEST(ResponsesRequest, AllowedToolsAreTheOnesShown) {
  const json::object chat = chat_body(R"({"input": "x", "tools": [{"type": "function", "name": "f"},
      {"type": "function", "name": "g"}], "tool_choice": {"type": "allowed_tools", "mode": "required",
      "tools": [{"type": "function", "name": "g"}]}})");
  ASSERT_EQ(chat.at("tools").as_array().size(), 1u);
  EXPECT_EQ(chat.at("tools").at(0).at("function").at("name").as_string(), "g");
  EXPECT_EQ(chat.at("tool_choice").as_string(), "required");
}

TEST(ResponsesRequest, FaultsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [5]})", "input[0]"},
      {R"({"input": [{"role": "robot", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content"},
      {R"({"input": ["x"]})", "input[0]"},
      {R"({"input": [{"type": "web_search_call"}]})", "input[0]"},
      {R"({"input": [{"type": "function_call", "name": "f"}]})", "input[0].call_id"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]})",
       "input[0].call_id"},
      {R"({"input": [{"type": "item_reference", "id": "msg_x"}]})", "input[0]"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})", "tools[0]"},
      {R"({"input": "x", "tools": [{"type": "function"}]})", "tools[0].name"},
      {R"({"input": "x", "tool_choice": {"type": "mcp"}})", "tool_choice"},
      {R"({"input": "x", "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "f"}]}})",
       "tool_choice"},
      {R"({"input": "x", "text": {"format": {"type": "json_schema"}}})", "text.format"},
      {R"({"input": "x", "text": {"format": {"type": "xml"}}})", "text.format"},
      {R"({"input": "x", "max_output_tokens": 0})", "max_output_tokens"},
      {R"({"input": "x", "metadata": {"k": 1}})", "metadata"},
      {R"({"input": "x", "background": true})", "background"},
      {R"({"input": "x", "truncation": "some"})", "truncation"},
      {R"({"input": "x", "conversation": "c"})", "conversation"},
      {R"({"input": "x", "prompt": {"id": "p"}})", "prompt"},
      {R"({"input": "x", "include": ["all"]})", "include"},
      {R"({"input": "x", "reasoning": {"summary": "detailed"}})", "reasoning"},
      {R"({"input": "x", "previous_response_id": "resp_x"})", "previous_response_id"},
  };
  for (const auto& [body, param] : cases) EXPECT_EQ(refused(body).param, param) << body;
  EXPECT_EQ(refused(R"({"input": "x", "previous_response_id": "resp_x"})").status, 404);
}

TEST(ResponsesRequest, ErrorsOfTheChatNameTheRequestsFields) {
  const ApiError error =
      responses_error({400, "'messages': 9 tokens are too many", "messages", "c"});
  EXPECT_EQ(error.param, "input");
  EXPECT_EQ(error.message, "'input': 9 tokens are too many");
  EXPECT_EQ(error.code, "c");
}

constexpr const char* kChat =
    R"({"id": "chatcmpl-1", "created": 5, "model": "m",
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
                  "completion_tokens_details": {"reasoning_tokens": 1}},
        "choices": [{"finish_reason": "tool_calls", "message": {"content": "ab", "reasoning_content": "r",
          "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"k\":1}"}}]}}]})";

TEST(Responses, AnswersAreKeptAndGoneOnFrom) {
  const OwnerResponses kept = a_store();
  auto translation = responses_translation(
      accepted(R"({"input": "hi", "metadata": {"k": "v"}})", kept), kept, kIdEnd);
  const std::string text = translation->answer(parsed_object(kChat));
  const json::object got = parsed_object(text);
  const std::string id = std::string("resp_") + kIdEnd;
  EXPECT_EQ(got.at("id").as_string(), id);
  EXPECT_EQ(got.at("status").as_string(), "completed");
  EXPECT_EQ(got.at("created_at").as_int64(), 5);
  EXPECT_EQ(got.at("metadata").at("k").as_string(), "v");
  const json::array& output = got.at("output").as_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0].at("content").at(0).at("text").as_string(), "r");
  EXPECT_EQ(output[1].at("content").at(0).at("text").as_string(), "ab");
  EXPECT_EQ(output[2].at("arguments").as_string(), R"({"k":1})");
  EXPECT_EQ(got.at("usage").at("output_tokens_details").at("reasoning_tokens").as_int64(), 1);
  ASSERT_NE(kept.get(id), nullptr);
  EXPECT_EQ(kept.get(id)->object, text);

  const json::object next =
      chat_body(fmt::format(R"({{"previous_response_id": "{}", "instructions": "new",
          "input": [{{"type": "function_call_output", "call_id": "c", "output": "9"}}]}})",
                            id),
                kept);
  EXPECT_EQ(next.at("messages"), parse_json(R"([
      {"role": "system", "content": "new"}, {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "ab", "reasoning_content": "r", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"k\":1}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "9"}])")
                                     .value());

  const std::string message_id(output[1].at("id").as_string());
  const std::string by_reference =
      fmt::format(R"({{"input": [{{"type": "item_reference", "id": "{}"}}]}})", message_id);
  EXPECT_EQ(chat_body(by_reference, kept).at("messages").at(0).at("content").as_string(), "ab");
  const OwnerResponses another = {kept.store, "another"};
  EXPECT_EQ(refused(by_reference, another).status, 404);
  EXPECT_EQ(
      refused(fmt::format(R"({{"previous_response_id": "{}", "input": "x"}})", id), another).status,
      404);
}

// The types of a stream's events; checks that their numbers are 0, 1, ...
std::vector<std::string> event_types(std::string_view stream) {
  std::vector<std::string> types;
  for (size_t at = stream.find("event: "); at != std::string_view::npos;
       at = stream.find("event: ", at + 1)) {
    const size_t data = stream.find("\ndata: ", at) + 7;
    const json::object event = parsed_object(stream.substr(data, stream.find("\n\n", data) - data));
    types.emplace_back(event.at("type").as_string());
    EXPECT_EQ(stream.substr(at + 7, data - 7 - at - 7), types.back());
    EXPECT_EQ(event.at("sequence_number").as_int64(), std::ssize(types) - 1);
  }
  return types;
}

TEST(Responses, StreamsSayTheSameInOrder) {
  const OwnerResponses kept = a_store();
  const std::string body = R"({"input": "hi", "stream": true})";
  auto translation = responses_translation(accepted(body, kept), kept, kIdEnd);
  std::string all;
  for (
      const char* chunk :
      {R"({"created": 5, "model": "m", "choices": [{"delta": {"role": "assistant", "content": ""}}]})",
       R"({"choices": [{"delta": {"reasoning_content": "r"}, "finish_reason": null}]})",
       R"({"choices": [{"delta": {"content": "a"}, "finish_reason": null}]})",
       R"({"choices": [{"delta": {"content": "b"}, "finish_reason": null}]})",
       R"({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c",
              "function": {"name": "f", "arguments": "{\"k\""}}]}}]})",
       R"({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}}]})",
       R"({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})",
       R"({"usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
              "completion_tokens_details": {"reasoning_tokens": 1}}, "choices": []})"})
    all += translation->chunk(parsed_object(chunk));
  all += translation->end();
  EXPECT_THAT(
      event_types(all),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done",
                  "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  auto whole = responses_translation(accepted(body, kept), a_store(), kIdEnd);
  const std::string id = std::string("resp_") + kIdEnd;
  EXPECT_EQ(kept.get(id)->object, whole->answer(parsed_object(kChat)));
}

TEST(Responses, CutAndFailedOnesSaySo) {
  auto cut = responses_translation(accepted(R"({"input": "hi"})"), a_store(), kIdEnd);
  const json::object got = parsed_object(cut->answer(
      parsed_object(R"({"choices": [{"finish_reason": "length", "message": {"content": "a"}}]})")));
  EXPECT_EQ(got.at("status").as_string(), "incomplete");
  EXPECT_EQ(got.at("incomplete_details").at("reason").as_string(), "max_output_tokens");
  EXPECT_EQ(got.at("output").at(0).at("status").as_string(), "incomplete");
  // The output may end between two calls.
  for (const auto& [arguments, status] :
       {std::pair("{}", "completed"), std::pair("{\\\"a\\\": ", "incomplete")}) {
    auto calls = responses_translation(accepted(R"({"input": "hi"})"), a_store(), kIdEnd);
    const json::object answer = parsed_object(calls->answer(parsed_object(fmt::format(
        R"({{"choices": [{{"finish_reason": "length", "message": {{"tool_calls": [
            {{"id": "c", "function": {{"name": "f", "arguments": "{}"}}}}]}}}}]}})",
        arguments))));
    EXPECT_EQ(answer.at("status").as_string(), "incomplete") << arguments;
    EXPECT_EQ(answer.at("output").at(0).at("status").as_string(), status) << arguments;
  }

  const OwnerResponses kept = a_store();
  auto failed =
      responses_translation(accepted(R"({"input": "hi", "stream": true})", kept), kept, kIdEnd);
  std::string all = failed->chunk(parsed_object(R"({"choices": [{"delta": {"content": "a"}}]})"));
  all += failed->error({500, "broken"}, true);
  EXPECT_EQ(event_types(all).back(), "response.failed");
  EXPECT_NE(all.find("broken"), std::string::npos);
  EXPECT_EQ(kept.store->bytes(), 0u);
}

}  // namespace
}  // namespace nereid::front
