// Limitations of templates, found by rendering, and the adapted conversations.
#include "text/chat_needs.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace nereid::text {
namespace {

constexpr const char* kChat = R"({"tools": null, "add_generation_prompt": true, "messages": [
  {"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"},
  {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function",
    "function": {"name": "f", "arguments": {"a": [1, "é"]}}}]},
  {"role": "system", "content": "late"}]})";

std::string render_chat(std::string_view source, const char* chat = kChat) {
  const auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return std::string(message(parsed.status()));
  const auto text = parsed->render_chat(parse_json(chat)->as_object());
  return text.ok() ? *text : "error: " + std::string(message(text.status()));
}

TEST(ChatNeeds, ATemplateThatTakesAllGetsAll) {
  EXPECT_EQ(render_chat("{% for m in messages %}{{ m.role }}:{{ m.content }}"
                        "{% for t in m.tool_calls or [] %}{{ t.function.arguments | tojson }}"
                        "{% endfor %};{% endfor %}"),
            R"(system:be brief;user:hi;assistant:{"a": [1, "é"]};system:late;)");
}

TEST(ChatNeeds, SystemTextMovesIntoTheUsersMessages) {
  EXPECT_EQ(render_chat("{% for m in messages %}{% if m.role == 'system' %}"
                        "{{ raise_exception('no system role') }}{% endif %}"
                        "{{ m.role[0] }}:{{ m.content }};{% endfor %}"),
            "u:be brief\n\nhi;a:;u:late;");
  // A template that leaves it out without an error.
  EXPECT_EQ(render_chat("{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}"),
            "be brief\n\nhi;late;");
}

// Templates that accept system text only at the front, with an error otherwise or without one.
TEST(ChatNeeds, LateSystemTextMovesIntoTheUsersMessages) {
  constexpr const char* kLate = R"({"messages": [
    {"role": "system", "content": "a"}, {"role": "system", "content": "b"},
    {"role": "user", "content": "one"}, {"role": "system", "content": "late"},
    {"role": "assistant", "content": "two"}, {"role": "system", "content": "later"},
    {"role": "user", "content": "three"}, {"role": "system", "content": "last"}]})";
  for (const char* otherwise : {"{{ raise_exception('system must be first') }}", ""})
    EXPECT_EQ(render_chat(std::string("{% for m in messages %}"
                                      "{% if m.role == 'system' and not loop.first %}") +
                              otherwise + "{% else %}{{ m.role[0] }}:{{ m.content }};{% endif %}" +
                              "{% endfor %}",
                          kLate),
              "s:a\n\nb;u:one\n\nlate;a:two;u:later\n\nthree\n\nlast;");
  EXPECT_EQ(
      render_chat("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}", kLate),
      "s:a;s:b;u:one;s:late;a:two;s:later;u:three;s:last;");
}

TEST(ChatNeeds, ArgumentsBecomeText) {
  EXPECT_EQ(render_chat("{% for m in messages %}{{ m.content }}{% for t in m.tool_calls or [] %}"
                        "{{ '<' + t.function.arguments + '>' }}{% endfor %};{% endfor %}"),
            R"(be brief;hi;<{"a": [1, "é"]}>;late;)");
}

TEST(ChatNeeds, ContentsBecomeParts) {
  EXPECT_EQ(render_chat("{% for m in messages %}{% for p in m.content %}{{ p.type }}={{ p.text }}"
                        "{% endfor %};{% endfor %}",
                        R"({"messages": [{"role": "user", "content": "hi"}]})"),
            "text=hi;");
}

TEST(ChatNeeds, ThoughtsHaveAllTheirNames) {
  for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
    const std::string chat =
        std::string(R"({"messages": [{"role": "user", "content": "", ")") + name + R"(": "so"}]})";
    EXPECT_EQ(render_chat("{% for m in messages %}{{ m.content }}{{ m.thinking }}"
                          "{{ m.reasoning_content }}{% endfor %}",
                          chat.c_str()),
              "soso");
  }
}

TEST(ChatNeeds, ATemplateThatRendersNothingStaysAsItIs) {
  EXPECT_EQ(render_chat("{{ nothing.x }}"), "error: line 1: 'nothing' is undefined");
}

}  // namespace
}  // namespace nereid::text
