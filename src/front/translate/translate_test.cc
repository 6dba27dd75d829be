// Anthropic's messages in terms of chats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"
#include "front/translate/translate_fixture.h"

namespace nereid::front {
namespace {

using namespace testing_only;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(Messages, BecomeAChat) {
  const json::object chat =
      chat_of(translate_messages(object_of(R"({"model": "m", "max_tokens": 2048,
      "system": [{"type": "text", "text": "be kind"}], "stop_sequences": ["x"],
      "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"},
          {"type": "tool_use", "id": "i", "name": "f", "input": {"k": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "4"},
          {"type": "text", "text": "and?"}]}],
      "tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"},
      "thinking": {"type": "enabled", "budget_tokens": 1024}})")));
  const json::array& messages = chat.at("messages").get_array();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].at("content").as_string(), "be kind");
  EXPECT_EQ(messages[2].at("tool_calls").at(0).at("function").at("arguments").as_string(),
            R"({"k":1})");
  EXPECT_EQ(messages[3].at("role").as_string(), "tool");
  EXPECT_EQ(messages[3].at("content").as_string(), "4");
  EXPECT_EQ(messages[4].at("content").as_string(), "and?");
  EXPECT_EQ(chat.at("tool_choice").as_string(), "required");
  EXPECT_EQ(chat.at("thinking_token_budget").as_int64(), 1024);
  EXPECT_EQ(chat.at("tools").at(0).at("function").at("name").as_string(), "f");
  EXPECT_EQ(chat.at("stop").at(0).as_string(), "x");
  EXPECT_FALSE(chat.contains("continue_final_message"));
}

TEST(Messages, FaultsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "max_tokens"},
      {R"({"max_tokens": 1, "messages": []})", "messages"},
      {R"({"max_tokens": 1, "messages": [5]})", "messages.0"},
      {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]})", "messages.0.role"},
      {R"({"max_tokens": 1, "messages": [{"role": "user"}]})", "messages.0.content"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages.0.content.0.source.type"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "bash"}]})",
       "tools.0"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "x"}})",
       "tool_choice"},
  };
  for (const auto& [body, part] : cases)
    EXPECT_NE(fault_of(translate_messages(object_of(body))).find(part), std::string::npos) << body;
}

// As in Anthropic's API: only the assistant's last message may be empty, text blocks are not blank,
// and a message does not end with thinking.
TEST(Messages, EmptyContentIsAFaultOfItsMessage) {
  constexpr char kUser[] = R"({"role": "user", "content": "x"})";
  constexpr char kThought[] = R"({"type": "thinking", "thinking": "hm", "signature": ""})";
  const std::pair<std::string, const char*> cases[] = {
      {R"([{"role": "user", "content": []}])", "messages.0.content"},
      {R"([{"role": "user", "content": ""}])", "messages.0.content"},
      {R"([{"role": "user", "content": " \n"}])", "messages.0.content"},
      {R"([{"role": "user", "content": null}])", "messages.0.content"},
      {R"([{"role": "user", "content": [null]}])", "messages.0.content.0"},
      {R"([{"role": "user", "content": [{"type": "text", "text": ""}]}])",
       "messages.0.content.0.text"},
      {R"([{"role": "user", "content": [{"type": "text", "text": null}]}])",
       "messages.0.content.0.text"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages.0.content.0.text"},
      {R"([{"role": "assistant", "content": []}])", "messages: "},
      {R"([{"role": "assistant", "content": ""}])", "messages: "},
      {fmt::format(R"([{}, {{"role": "assistant", "content": []}}, {}])", kUser, kUser),
       "messages.1.content"},
      {fmt::format(R"([{{"role": "assistant", "content": [{}]}}])", kThought), "messages.0"},
      {fmt::format(R"([{{"role": "user", "content": [{}]}}])", kThought), "messages.0.content.0"},
      {fmt::format(R"([{}, {{"role": "assistant", "content": [{}]}}, {}])", kUser, kThought, kUser),
       "messages.1"},
      {R"([{"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}])",
       "messages.0"},
      {R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f"}]}])",
       "messages.0"},
      {R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f",
           "input": []}]}, {"role": "user", "content": "x"}])",
       "messages.0.content.0.input"},
      {R"([{"role": "user", "content": [{"type": "tool_use", "id": "i", "name": "f"}]}])",
       "messages.0.content.0"},
      {R"([{"role": "user", "content": [{"type": "tool_result"}]}])",
       "messages.0.content.0.tool_use_id"},
      {R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i",
           "content": [{"type": "text", "text": null}]}]}])",
       "messages.0.content.0.content.0.text"},
      {"null", "messages: "},
      {R"({"role": "user"})", "messages: "},
  };
  for (const auto& [messages, begin] : cases)
    EXPECT_THAT(fault_of(translate_messages_of(messages)), StartsWith(begin)) << messages;
  const std::pair<const char*, const char*> others[] = {
      {R"(, "system": [{"type": "text", "text": ""}])", "system.0.text"},
      {R"(, "system": [{"type": "text", "text": null}])", "system.0.text"},
      {R"(, "system": [null])", "system"},
      {R"(, "tools": {})", "tools"},
      {R"(, "tool_choice": "any")", "tool_choice"},
  };
  for (const auto& [more, begin] : others)
    EXPECT_THAT(fault_of(translate_messages_of(fmt::format("[{}]", kUser), more)),
                StartsWith(begin))
        << more;
}

// Source: docs of mid-conversation system messages, which agents use for reminders.
TEST(Messages, SystemMessagesKeepTheirPlace) {
  const json::object chat = chat_of(translate_messages_of(
      R"([{"role": "system", "content": "one"}, {"role": "system", "content": "two"},
          {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "system", "content": [{"type": "text", "text": "late"}]},
          {"role": "user", "content": "c"}])",
      R"(, "system": "zero")"));
  const json::array& messages = chat.at("messages").as_array();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].at("content").as_string(), "zero\none\ntwo") << "one text in front";
  EXPECT_EQ(messages[3].at("role").as_string(), "system");
  EXPECT_EQ(messages[3].at("content").as_string(), "late");
  EXPECT_THAT(fault_of(translate_messages_of(R"([{"role": "system", "content": []}])")),
              StartsWith("messages.0.content"));
}

TEST(Messages, TurnsOfOneRoleAreOneTurn) {
  const json::object chat = chat_of(translate_messages_of(
      R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
          {"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f"}]},
          {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": "4"}]},
          {"role": "user", "content": "c"}])"));
  const json::array& messages = chat.at("messages").as_array();
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].at("content").as_string(), "a\nb");
  EXPECT_EQ(messages[2].at("content").as_string(), "4");
  EXPECT_EQ(messages[3].at("content").as_string(), "c");
}

TEST(Messages, ThinkingIsReadInAllItsForms) {
  const auto chat = [](std::string_view more) { return chat_of(translate_messages_of(kHi, more)); };
  for (const char* type : {"enabled", "adaptive", "between_tools", "disabled"}) {
    const bool is_on = type != std::string_view("disabled");
    const json::object got = chat(fmt::format(R"(, "thinking": {{"type": "{}"}})", type));
    EXPECT_EQ(got.at("include_reasoning").as_bool(), is_on) << type;
    EXPECT_EQ(got.at("chat_template_kwargs").at("enable_thinking").as_bool(), is_on) << type;
    EXPECT_FALSE(got.contains("thinking_token_budget")) << type;
  }
  const json::object hidden = chat(R"(, "thinking": {"type": "adaptive", "display": "omitted"})");
  EXPECT_FALSE(hidden.at("include_reasoning").as_bool());
  EXPECT_TRUE(hidden.at("chat_template_kwargs").at("thinking").as_bool());
  EXPECT_FALSE(chat("").at("include_reasoning").as_bool());
  for (const char* more : {R"(, "thinking": true)", R"(, "thinking": "adaptive")",
                           R"(, "thinking": {})", R"(, "thinking": {"type": "much"})"})
    EXPECT_THAT(fault_of(translate_messages_of(kHi, more)), StartsWith("thinking")) << more;
}

TEST(Messages, OutputIsOfTheEffortAndFormThatAreWanted) {
  const auto chat = [](std::string_view more) { return chat_of(translate_messages_of(kHi, more)); };
  for (const auto& [effort, known] : {std::pair{"low", "low"},
                                      {"medium", "medium"},
                                      {"high", "high"},
                                      {"xhigh", "high"},
                                      {"max", "high"}})
    EXPECT_EQ(chat(fmt::format(R"(, "output_config": {{"effort": "{}"}})", effort))
                  .at("reasoning_effort")
                  .as_string(),
              known);
  constexpr char kForm[] = R"({"type": "json_schema", "schema": {"type": "object"}})";
  for (const char* more : {R"(, "output_config": {{"format": {}}})", R"(, "output_format": {})"}) {
    const json::object got = chat(fmt::format(fmt::runtime(more), kForm));
    EXPECT_EQ(got.at("response_format").at("json_schema").at("schema").at("type").as_string(),
              "object")
        << more;
  }
  EXPECT_FALSE(chat(R"(, "output_config": {"format": null}, "output_format": null)")
                   .contains("response_format"));
  const std::pair<std::string, const char*> cases[] = {
      {R"(, "output_config": 1)", "output_config: "},
      {R"(, "output_config": {"effort": "huge"})", "output_config.effort: "},
      {R"(, "output_config": {"effort": 5})", "output_config.effort: "},
      {R"(, "output_config": {"format": "json"})", "output_config.format: "},
      {R"(, "output_config": {"format": {"type": "text"}})", "output_config.format: "},
      {R"(, "output_config": {"format": {"type": "json_schema", "schema": "x"}})",
       "output_config.format: "},
      {R"(, "output_format": {"type": "json_schema"})", "output_format: "},
      {fmt::format(R"(, "output_config": {{"format": {}}}, "output_format": {})", kForm, kForm),
       "output_format: "}};
  for (const auto& [more, begin] : cases)
    EXPECT_THAT(fault_of(translate_messages_of(kHi, more)), StartsWith(begin)) << more;
}

TEST(Messages, WhatIsNotThereIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(, "container": "c")", "container: "},
      {R"(, "mcp_servers": [{"type": "url"}])", "mcp_servers: "},
      {R"(, "fallbacks": [{}])", "fallbacks: "},
      {R"(, "context_management": {"edits": [{"type": "clear_thinking_20251015"},
                                             {"type": "clear_tool_uses_20250919"}]})",
       "context_management.edits.1: "},
      {R"(, "context_management": [])", "context_management: "},
      {R"(, "tools": [{"name": "f", "input_schema": {}},
                      {"type": "web_search_20250305", "name": "web_search"}])",
       "tools.1: type \"web_search_20250305\""},
      {R"(, "tools": [{"type": 5, "name": "f", "input_schema": {}}])", "tools.0: "},
      {R"(, "tools": [null])", "tools.0.name: "},
      {R"(, "tools": [{"name": "f", "input_schema": null}])", "tools.0.input_schema: "}};
  for (const auto& [more, begin] : cases)
    EXPECT_THAT(fault_of(translate_messages_of(kHi, more)), StartsWith(begin)) << more;
  const auto harmless = translate_messages_of(
      kHi, R"(, "container": null, "mcp_servers": [], "metadata": {"user_id": "u"},
             "service_tier": "auto", "cache_control": {"type": "ephemeral"},
             "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
             "tools": [{"type": "custom", "name": "f", "input_schema": {}, "strict": true,
                        "cache_control": {"type": "ephemeral"}}])");
  EXPECT_THAT(read_of(harmless).unknown, IsEmpty());
  EXPECT_TRUE(chat_of(harmless).at("tools").at(0).at("function").at("strict").as_bool());
}

TEST(Messages, UnknownMembersAreListed) {
  const auto t =
      translate_messages_of(kHi, R"(, "temprature": 0, "thinking": {"type": "disabled", "depth": 1},
             "output_config": {"task_budget": {}}, "tool_choice": {"type": "auto", "x": 1})");
  EXPECT_THAT(read_of(t).unknown, ElementsAre("temprature", "thinking.depth",
                                              "output_config.task_budget", "tool_choice.x"));
}

TEST(Messages, MaxTokensAreClippedAndSoSays) {
  auto t =
      translate_messages(object_of(fmt::format(R"({{"max_tokens": 9, "messages": {}}})", kHi)));
  EXPECT_TRUE(read_of(t).rules.clips_max_tokens);
  EXPECT_FALSE(read_of(t).rules.drops_messages);
  Translation& translation = *std::get<Translated>(t).translation;
  const auto reason = [&](int tokens) {
    return std::string(object_of(translation.answer(object_of(fmt::format(
                                     R"({{"usage": {{"completion_tokens": {}}},
                                          "choices": [{{"finish_reason": "length"}}]}})",
                                     tokens))))
                           .at("stop_reason")
                           .as_string());
  };
  EXPECT_EQ(reason(9), "max_tokens");
  EXPECT_EQ(reason(8), "model_context_window_exceeded");
}

TEST(Messages, CountsNeedNoMaxTokens) {
  const auto t = translate_messages_to_count(object_of(fmt::format(R"({{"messages": {}}})", kHi)));
  EXPECT_EQ(chat_of(t).at("messages").as_array().size(), 1u);
  EXPECT_EQ(messages_token_count(7), R"({"input_tokens":7})");
  EXPECT_THAT(fault_of(translate_messages_to_count(object_of("{}"))), StartsWith("messages: "));
}

TEST(Messages, ErrorsHaveTheRequestsNames) {
  auto t = translate_messages_of(kHi);
  Translation& translation = *std::get<Translated>(t).translation;
  EXPECT_THAT(
      translation.error({400, "'thinking_token_budget': no", "thinking_token_budget", ""}, false),
      HasSubstr("'thinking.budget_tokens': no"));
}

TEST(Messages, WhatMayBeEmptyIsRead) {
  json::object chat = chat_of(translate_messages_of(
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": []}])",
      R"(, "system": [], "tools": null, "tool_choice": null)"));
  EXPECT_EQ(chat.at("messages").as_array().size(), 1u) << "neither a system nor a last message";
  EXPECT_FALSE(chat.contains("continue_final_message"));
  chat = chat_of(translate_messages_of(
      R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "I say"}])",
      R"(, "system": "")"));
  EXPECT_EQ(chat.at("messages").as_array().size(), 2u);
  EXPECT_TRUE(chat.at("continue_final_message").as_bool());
  for (const char* content :
       {"", R"(, "content": null)", R"(, "content": "")", R"(, "content": [])",
        R"(, "content": [{"type": "text", "text": ""}])"}) {
    chat = chat_of(translate_messages_of(fmt::format(
        R"([{{"role": "assistant", "content": [{{"type": "thinking"}},
             {{"type": "tool_use", "id": "i", "name": "f", "input": null}}]}},
            {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "i"{}}}]}}])",
        content)));
    const json::array& messages = chat.at("messages").as_array();
    ASSERT_EQ(messages.size(), 2u) << content;
    EXPECT_EQ(messages[0].at("tool_calls").at(0).at("function").at("arguments").as_string(), "{}");
    EXPECT_EQ(messages[1].at("role").as_string(), "tool");
    EXPECT_EQ(messages[1].at("content").as_string(), "");
  }
}

// Source: docs of extended thinking and of interleaved thinking.
TEST(Messages, BudgetsOfThoughtsAreChecked) {
  const auto translate = [](std::string_view budget, int max_tokens, std::string_view more = "") {
    return translate_messages(object_of(fmt::format(
        R"({{"max_tokens": {}, "messages": {},
             "thinking": {{"type": "enabled", "budget_tokens": {}}}{}}})",
        max_tokens, kHi, budget, more)));
  };
  EXPECT_EQ(chat_of(translate("1024", 1025)).at("thinking_token_budget").as_int64(), 1024);
  EXPECT_EQ(chat_of(translate("30", 40)).at("thinking_token_budget").as_int64(), 30);
  for (const char* budget : {"0", "-1", "1024.5", "\"many\"", "true"})
    EXPECT_THAT(fault_of(translate(budget, 4096)), StartsWith("thinking.budget_tokens: "))
        << budget;
  for (const int max_tokens : {1, 1024})
    EXPECT_THAT(fault_of(translate("1024", max_tokens)), StartsWith("max_tokens: ")) << max_tokens;
  for (const char* more : {R"(, "anthropic_beta": "a-1,interleaved-thinking-2025-05-14")",
                           R"(, "betas": ["interleaved-thinking-2025-05-14"])"})
    EXPECT_EQ(chat_of(translate("2000", 1024, more)).at("thinking_token_budget").as_int64(), 2000);
  EXPECT_EQ(fault_of(translate_messages_to_count(object_of(fmt::format(
                R"({{"messages": {}, "thinking": {{"type": "enabled", "budget_tokens": 1024}}}})",
                kHi)))),
            "")
      << "nothing is wanted";
  EXPECT_EQ(fault_of(translate_messages_of(
                kHi, R"(, "thinking": {"type": "disabled", "budget_tokens": 1})")),
            "");
}

// Source: the API's error "final assistant content cannot end with trailing whitespace".
TEST(Messages, APrefillDoesNotEndWithBlanks) {
  for (const char* content :
       {R"("I say ")", R"("I say\n")", R"("I say\t")",
        R"([{"type": "text", "text": "I"}, {"type": "text", "text": "say "}])"}) {
    const std::string last = fmt::format(R"({{"role": "assistant", "content": {}}})", content);
    const std::string user = R"({"role": "user", "content": "x "})";
    EXPECT_THAT(
        fault_of(translate_messages_of(fmt::format("[{}, {}]", user, last))),
        StartsWith("messages.1: final assistant content cannot end with trailing whitespace"))
        << content;
    EXPECT_EQ(fault_of(translate_messages_of(fmt::format("[{}, {}, {}]", user, last, user))), "")
        << content;
  }
}

// Source: docs of documents ("Citations") and of search results.
TEST(Messages, DocumentsOfTextAreRead) {
  const auto content = [](std::string_view block) {
    const auto t = translate_messages_of(fmt::format(
        R"([{{"role": "user", "content": [{}, {{"type": "text", "text": "and?"}}]}}])", block));
    return std::string(chat_of(t).at("messages").at(0).at("content").as_string());
  };
  EXPECT_EQ(
      content(R"({"type": "document", "title": "T", "context": "C", "citations": {"enabled": true},
                "source": {"type": "text", "media_type": "text/plain", "data": "one\ntwo"}})"),
      "<document>\n<title>T</title>\n<context>C</context>\n"
      "<document_content>one\ntwo</document_content>\n</document>\nand?");
  EXPECT_EQ(content(R"({"type": "document", "title": null, "source": {"type": "content", "content":
                [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}})"),
            "<document>\n<document_content>one\ntwo</document_content>\n</document>\nand?");
  EXPECT_EQ(content(R"({"type": "document", "source": {"type": "content", "content": "one"}})"),
            "<document>\n<document_content>one</document_content>\n</document>\nand?");
  const std::string result = R"({"type": "search_result", "source": "http://x", "title": "T",
      "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]})";
  const std::string shown =
      "<search_result>\n<source>http://x</source>\n<title>T</title>\n<content>one\ntwo</content>\n"
      "</search_result>";
  EXPECT_EQ(content(result), shown + "\nand?");
  const json::object chat = chat_of(translate_messages_of(fmt::format(
      R"([{{"role": "assistant", "content": [{{"type": "tool_use", "id": "i", "name": "f"}}]}},
          {{"role": "user", "content": [{{"type": "tool_result", "tool_use_id": "i",
            "content": [{}, {{"type": "text", "text": ""}}]}}]}}])",
      result)));
  EXPECT_EQ(chat.at("messages").at(1).at("content").as_string(), shown + "\n");
}

TEST(Messages, OtherDocumentsAreRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "document"})", "messages.0.content.0.source.type: ''"},
      {R"({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}})",
       "messages.0.content.0.source.type: 'base64' is not supported"},
      {R"({"type": "document", "source": {"type": "url", "url": "http://x"}})",
       "messages.0.content.0.source.type: 'url'"},
      {R"({"type": "document", "source": {"type": "file", "file_id": "x"}})",
       "messages.0.content.0.source.type: 'file'"},
      {R"({"type": "document", "source": {"type": "text", "media_type": "text/html", "data": ""}})",
       "messages.0.content.0.source.media_type: 'text/html'"},
      {R"({"type": "document", "source": {"type": "text", "data": 5}})",
       "messages.0.content.0.source.data: "},
      {R"({"type": "document", "title": 5, "source": {"type": "text", "data": "x"}})",
       "messages.0.content.0.title: "},
      {R"({"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}})",
       "messages.0.content.0.source.content.0: a block of type 'image'"},
      {R"({"type": "document", "source": {"type": "content"}})",
       "messages.0.content.0.source.content: "},
      {R"({"type": "search_result", "title": "T", "content": []})",
       "messages.0.content.0.source: "},
      {R"({"type": "search_result", "source": "s", "content": []})",
       "messages.0.content.0.title: "},
      {R"({"type": "search_result", "source": "s", "title": "T", "content": "x"})",
       "messages.0.content.0.content: "},
      {R"({"type": "search_result", "source": "s", "title": "T", "content": [{"type": "text"}]})",
       "messages.0.content.0.content.0.text: "}};
  for (const auto& [block, begin] : cases)
    EXPECT_THAT(fault_of(translate_messages_of(
                    fmt::format(R"([{{"role": "user", "content": [{}]}}])", block))),
                StartsWith(begin))
        << block;
  EXPECT_THAT(fault_of(translate_messages_of(R"([{"role": "assistant", "content": [
                  {"type": "document", "source": {"type": "text", "data": "x"}}]}])")),
              StartsWith("messages.0.content.0: document blocks can only be in user messages"));
}

TEST(Messages, ImagesBecomeParts) {
  const json::object chat = chat_of(translate_messages(object_of(R"({"max_tokens": 1, "messages": [
      {"role": "user", "content": "first"},
      {"role": "user", "content": [{"type": "text", "text": "a"},
        {"type": "image", "source": {"type": "url", "url": "https://x/y"}},
        {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "text", "text": "c"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
      ]}]}]})")));
  const json::array& messages = chat.at("messages").as_array();
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].at("content"),
            *parse_json(R"([{"type": "text", "text": "first"}, {"type": "text", "text": "a"},
                            {"type": "image_url", "image_url": "https://x/y"},
                            {"type": "text", "text": "b"}])"));
  EXPECT_EQ(messages[2].at("content"), *parse_json(R"([{"type": "text", "text": "c"},
                            {"type": "image_url", "image_url": "data:image/png;base64,QUJD"}])"));
}

}  // namespace
}  // namespace nereid::front
