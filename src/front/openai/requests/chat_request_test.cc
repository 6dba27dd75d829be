#include <gtest/gtest.h>

#include "front/http/json_text.h"
#include "front/openai/requests/requests.h"

namespace nereid::front {
namespace {

ApiError chat_error(std::string_view body) {
  const auto r = parse_chat_request(body);
  const auto* e = std::get_if<ApiError>(&r);
  return e ? *e : ApiError{200, "accepted", "", ""};
}

TEST(ChatRequest, NormalisesMessages) {
  const auto r = parse_chat_request(R"({"messages": [
    {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
    {"role": "tool", "content": "r", "tool_call_id": "1"}]})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  const json::array& m = std::get<ChatRequest>(r).context.at("messages").as_array();
  EXPECT_EQ(m[0].at("role").as_string(), "developer");
  EXPECT_EQ(m[0].at("content").as_string(), "a\nb");
  EXPECT_EQ(m[1].at("content").as_string(), "");
  EXPECT_EQ(m[1].at("tool_calls").at(0).at("function").at("arguments").at("x").as_int64(), 1);
  EXPECT_TRUE(std::get<ChatRequest>(r).context.at("add_generation_prompt").as_bool());
  EXPECT_TRUE(std::get<ChatRequest>(r).context.at("tools").is_null());
}

// Clients send back all members of an answer, absent ones as null.
TEST(ChatRequest, AnswersOfEarlierTurns) {
  const auto r = parse_chat_request(R"({"messages": [
    {"role": "assistant", "content": null},
    {"role": "assistant", "reasoning_content": "thoughts"},
    {"role": "assistant", "content": null, "refusal": "no"},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": ""}},
      {"id": "2", "function": {"name": "f", "arguments": " null "}},
      {"id": "3", "function": {"name": "f", "arguments": null}},
      {"id": "4", "function": {"name": "f"}},
      {"id": "5", "function": {"name": "f", "arguments": {"x": 1}}},
      {"id": "6", "function": {"name": "f", "arguments": "[1]"}}]},
    {"role": "custom", "content": "x"}]})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  const json::array& m = std::get<ChatRequest>(r).context.at("messages").as_array();
  const std::string contents[] = {"", "", "no", "never", "", "x"};
  for (size_t i = 0; i < m.size(); ++i) EXPECT_EQ(m[i].at("content").as_string(), contents[i]) << i;
  const json::array& calls = m[4].at("tool_calls").as_array();
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(calls[i].at("function").at("arguments"), json::value(json::object())) << i;
  EXPECT_EQ(calls[4].at("function").at("arguments").at("x"), 1);
  EXPECT_EQ(calls[5].at("function").at("arguments"), "[1]");
}

TEST(ChatRequest, NumbersOfEarlierCallsKeepTheirDigits) {
  constexpr char kArguments[] = R"({"id":123456789012345678901,"x":0.12345678901234567890})";
  std::string as_text;
  append_json_string(as_text, kArguments);
  for (const std::string& arguments : {std::string(kArguments), as_text}) {
    const auto r = parse_chat_request(fmt::format(
        R"({{"temperature": 0.70000000000000000001, "messages": [{{"role": "assistant", "content": "",
             "tool_calls": [{{"id": "1", "function": {{"name": "f", "arguments": {}}}}}]}}]}})",
        arguments));
    ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
    const auto& request = std::get<ChatRequest>(r);
    const json::value& call = request.context.at("messages").at(0).at("tool_calls").at(0);
    EXPECT_EQ(json_text(call.at("function").at("arguments")), kArguments);
    EXPECT_NEAR(request.common.sampling.temperature, 0.7, 1e-9) << "a double, as in other fields";
  }
  const auto wrong = parse_chat_request(
      R"({"messages": [{"role": "user", "content": [{"type": 123456789012345678901}]}]})");
  EXPECT_NE(std::get<ApiError>(wrong).message.find("got 123456789012345678901"), std::string::npos);
}

TEST(ChatRequest, NumbersOfSchemasKeepTheirDigits) {
  constexpr char kSchema[] =
      R"({"type":"object","properties":{"id":{"enum":[123456789012345678901],"maximum":1e400}}})";
  const auto body = [](std::string_view parameters, std::string_view choice) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools": [{{"type":
        "function", "function": {{"name": "f", "parameters": {}}}}}], "tool_choice": {}}})",
                       parameters, choice);
  };
  const auto guide = [&](std::string_view choice) {
    const auto r = parse_chat_request(body(kSchema, choice));
    return std::get<ChatRequest>(r).common.sampling.guide->text;
  };
  EXPECT_EQ(guide(R"({"type": "function", "function": {"name": "f"}})"), kSchema);
  EXPECT_NE(guide("\"required\"").find("[123456789012345678901]"), std::string::npos);
  const auto r = parse_chat_request(body(kSchema, "\"auto\""));
  const json::value& tool = std::get<ChatRequest>(r).context.at("tools").at(0);
  EXPECT_EQ(json_text(tool.at("function").at("parameters")), kSchema);
  EXPECT_EQ(chat_error(body("123456789012345678901", "\"auto\"")).param, "tools");
}

TEST(ChatRequest, ToolsAndChoices) {
  const std::string base = R"({"messages": [{"role": "user", "content": "x"}], "tools":
      [{"type": "function", "function": {"name": "f"}}])";
  auto r = parse_chat_request(base + "}");
  EXPECT_EQ(std::get<ChatRequest>(r).tool_use, ToolUse::kAuto);
  r = parse_chat_request(base + R"(, "tool_choice": "none"})");
  EXPECT_EQ(std::get<ChatRequest>(r).tool_use, ToolUse::kNone);
  EXPECT_TRUE(std::get<ChatRequest>(r).context.at("tools").is_null());
  for (const char* choice : {R"("always")", R"({"type": "function"})",
                             R"({"type": "function", "function": {"name": "g"}})"})
    EXPECT_EQ(chat_error(base + fmt::format(R"(, "tool_choice": {}}})", choice)).param,
              "tool_choice");
  EXPECT_EQ(chat_error(base + R"(, "tool_choice": "required", "guided_regex": "a"})").param,
            "tool_choice");
  // A response format does not constrain calls.
  const std::string form =
      R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}})";
  r = parse_chat_request(
      base + R"(, "tool_choice": {"type": "function", "function": {"name": "f"}}, )" + form + "}");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r));
  EXPECT_EQ(std::get<ChatRequest>(r).common.sampling.guide->text, R"({"type":"object"})");
  EXPECT_EQ(chat_error(R"({"messages": [{"role": "user", "content": "x"}],
                           "tool_choice": "required"})")
                .param,
            "tool_choice");
}

TEST(ChatRequest, AllowedTools) {
  const auto request = [](std::string_view allowed) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], "tools":
        [{{"type": "function", "function": {{"name": "f"}}}},
         {{"type": "function", "function": {{"name": "g"}}}}],
        "tool_choice": {{"type": "allowed_tools", "allowed_tools": {}}}}})",
                       allowed);
  };
  const auto parse = [&](std::string_view mode) {
    return parse_chat_request(request(fmt::format(
        R"({{"mode": "{}", "tools": [{{"type": "function", "function": {{"name": "g"}}}}]}})",
        mode)));
  };
  auto r = parse("auto");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_EQ(std::get<ChatRequest>(r).tool_use, ToolUse::kAuto);
  const json::array& tools = std::get<ChatRequest>(r).context.at("tools").as_array();
  ASSERT_EQ(tools.size(), 1u);
  EXPECT_EQ(tools[0].at("function").at("name").as_string(), "g");
  r = parse("required");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  const json::value schema = *parse_json(std::get<ChatRequest>(r).common.sampling.guide->text);
  EXPECT_EQ(schema.at("items").at("anyOf").as_array().size(), 1u);
  for (const char* wrong :
       {"{}", R"({"mode": "none", "tools": []})", R"({"mode": "auto", "tools": []})",
        R"({"mode": "auto", "tools": [{"type": "function", "function": {"name": "h"}}]})"})
    EXPECT_EQ(chat_error(request(wrong)).param, "tool_choice") << wrong;
}

TEST(ChatRequest, ThinkingIsSaidToTheTemplate) {
  const auto r =
      parse_chat_request(R"({"messages": [{"role": "user", "content": "x"}], "thinking": false})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r));
  const json::object& context = std::get<ChatRequest>(r).context;
  EXPECT_EQ(context.at("thinking"), json::value(false));
  EXPECT_EQ(context.at("enable_thinking"), json::value(false));
}

TEST(ChatRequest, CallsThatAreWantedAreGuided) {
  const std::string base = R"({"messages": [{"role": "user", "content": "x"}], "tools":
      [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties":
        {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}}},
       {"type": "function", "function": {"name": "g"}}], "parallel_tool_calls": false)";
  auto r = parse_chat_request(base + R"(, "tool_choice": {"type": "function", "function":
      {"name": "g"}}})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_EQ(std::get<ChatRequest>(r).named_tool, "g");
  EXPECT_EQ(std::get<ChatRequest>(r).common.sampling.guide->text, R"({"type":"object"})");

  r = parse_chat_request(base + R"(, "tool_choice": "required"})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  const auto& guide = std::get<ChatRequest>(r).common.sampling.guide;
  ASSERT_TRUE(guide);
  const json::value schema = *parse_json(guide->text);
  EXPECT_EQ(schema.at("maxItems").as_int64(), 1);
  const json::value& first = schema.at("items").at("anyOf").at(0);
  EXPECT_EQ(first.at("properties").at("name").at("const").as_string(), "f");
  // References within the function's schema refer to its own parts.
  const json::value& parameters = first.at("properties").at("parameters");
  EXPECT_EQ(parameters.at("$id").as_string(), "nereid:tool-0");
  EXPECT_EQ(parameters.at("properties").at("a").at("$ref").as_string(), "#/$defs/n");
  EXPECT_EQ(parameters.at("$defs").at("n").at("type").as_string(), "integer");
}

TEST(ChatRequest, RequestIdsAreShortAndPlain) {
  EXPECT_TRUE(is_request_id(""));
  EXPECT_TRUE(is_request_id(std::string(128, 'a')));
  EXPECT_FALSE(is_request_id(std::string(129, 'a')));
  EXPECT_FALSE(is_request_id("a b"));
  EXPECT_FALSE(is_request_id("a\r"));
}

TEST(ChatRequest, ReadsTheLimitOfReasoning) {
  const auto r = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "x"}], "thinking_token_budget": 7})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_EQ(std::get<ChatRequest>(r).max_reasoning_tokens, 7);
  EXPECT_EQ(
      std::get<ApiError>(parse_completion_request(R"({"prompt": "x", "thinking_token_budget": 7})"))
          .param,
      "thinking_token_budget");
}

TEST(ChatRequest, ReadsReturnTokenIds) {
  const std::string base = R"({"messages": [{"role": "user", "content": "x"}])";
  auto r = parse_chat_request(base + R"(, "return_token_ids": true})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_TRUE(std::get<ChatRequest>(r).common.return_token_ids);
  EXPECT_EQ(chat_error(base + R"(, "return_token_ids": 1})").param, "return_token_ids");
}

TEST(ChatRequest, GoesOnWithTheLastMessage) {
  const std::string base = R"({"messages": [{"role": "user", "content": "x"}])";
  auto r = parse_chat_request(base + R"(, "continue_final_message": true})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_TRUE(std::get<ChatRequest>(r).continues_last);
  EXPECT_FALSE(std::get<ChatRequest>(r).context.at("add_generation_prompt").as_bool());
  EXPECT_EQ(chat_error(base + R"(, "continue_final_message": true, "add_generation_prompt": true})")
                .param,
            "continue_final_message");
}

TEST(ChatRequest, UnknownFieldsAreListed) {
  auto r = parse_chat_request(
      R"({"messages": [{"role": "user", "content": "x"}], "tempreature": 1, "request_id": "a-1"})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(r)) << std::get<ApiError>(r).message;
  EXPECT_EQ(std::get<ChatRequest>(r).common.unknown, std::vector<std::string>{"tempreature"});
  EXPECT_EQ(std::get<ChatRequest>(r).common.request_id, "a-1");
  EXPECT_EQ(
      chat_error(R"({"messages": [{"role": "user", "content": "x"}], "request_id": "a\r\nb"})")
          .param,
      "request_id");
}

TEST(ChatRequest, FaultsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": ["x"]})", "messages[0]"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "tool", "content": null}]})", "messages[0].content"},
      {R"({"messages": [{"role": 5, "content": "x"}]})", "messages[0]"},
      {R"({"messages": [{"role": "", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]})",
       "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})",
       "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x",
          "detail": "huge"}}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "image_url", "image_url": "x"}]}]})",
       "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": "x"}], "logprobs": 3})", "logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 3})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "n": 200})", "n"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": [5]})", "tools"},
      {R"({"messages": [{"role": "user", "content": "x"}], "functions": [{}]})", "functions"},
  };
  for (const auto& [body, param] : cases) {
    const ApiError e = chat_error(body);
    EXPECT_EQ(e.param, param) << body << " " << e.message;
  }
  EXPECT_NE(chat_error(cases[9].first).message.find("\"video_url\": send frames of the video as"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::front
