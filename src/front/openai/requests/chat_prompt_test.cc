// The lane in which a conversation is rendered, and its limits.
#include "front/openai/requests/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::front {
namespace {

using testing::HasSubstr;

// A step of the template for each message costs some 30,000 of the rendering's.
constexpr char kSlow[] =
    "{% for m in messages %}{% for i in range(5000) %}{% endfor %}{{ m.content }}{% endfor %}";

LanguageModel model_with(std::string_view source) {
  LanguageModel model;
  auto parsed = text::ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (parsed.ok()) model.chat_template = *std::move(parsed);
  model.takes_templates = true;
  return model;
}

json::object conversation(int num_messages, std::string_view content = "a") {
  json::array messages;
  for (int i = 0; i < num_messages; ++i)
    messages.push_back({{"role", "user"}, {"content", json::string_view(content)}});
  return {{"messages", std::move(messages)}};
}

// The text, the error, or that it takes longer.
std::string prompt(const LanguageModel& model, const json::object& context, const PromptWork& work,
                   bool continues_last = false, std::optional<std::string> own = {}) {
  try {
    auto text = chat_prompt(model, context, continues_last, own, work);
    if (const auto* error = std::get_if<ApiError>(&text)) return "error: " + error->message;
    return std::get<std::string>(text);
  } catch (const TakesLonger&) {
    return "takes longer";
  }
}

TEST(ChatPrompt, EachLaneRendersWhatItMayTake) {
  const LanguageModel model = model_with("{{ messages | length }}");
  EXPECT_EQ(prompt(model, conversation(2), {Lane::kLoop}), "2");
  const LanguageModel slow = model_with(kSlow);
  EXPECT_EQ(prompt(slow, conversation(1), {Lane::kLoop}), "takes longer");
  EXPECT_EQ(prompt(slow, conversation(2), {Lane::kWorker}), "aa");
  EXPECT_EQ(prompt(slow, conversation(90), {Lane::kWorker}), "takes longer");
  EXPECT_EQ(prompt(slow, conversation(90), {Lane::kLong}), std::string(90, 'a'));
  EXPECT_THAT(prompt(slow, conversation(900), {Lane::kLong}), HasSubstr("too many steps"));
}

TEST(ChatPrompt, TemplatesOfRequestsAndLongTextsAreNotForTheLoop) {
  const LanguageModel model = model_with("{{ 'a' * 100000 if messages[0].content == 'x' }}");
  EXPECT_EQ(prompt(model, conversation(1, "x"), {Lane::kLoop}), "takes longer");
  EXPECT_EQ(prompt(model, conversation(1, "x"), {Lane::kWorker}).size(), 100000u);
  EXPECT_EQ(prompt(model, conversation(1), {Lane::kLoop}, false, "b"), "takes longer");
  EXPECT_EQ(prompt(model, conversation(1), {Lane::kWorker}, false, "b"), "b");
}

TEST(ChatPrompt, RendersUntilItIsUnwanted) {
  const LanguageModel slow = model_with(kSlow);
  int asked = 0;
  const PromptWork work{Lane::kLong, [&] { return ++asked == 3; }};
  EXPECT_THAT(prompt(slow, conversation(90), work), HasSubstr("was cancelled while its template"));
  EXPECT_EQ(asked, 3);
}

// The product of the lengths is 10^12 comparisons.
TEST(ChatPrompt, TheEndOfAContinuedMessageIsFoundInLinearTime) {
  const LanguageModel model = model_with("{{ 'a' * 2000000 if messages | length == 2 }}hi");
  json::object context = conversation(2, std::string(500'000, 'a') + "b");
  EXPECT_THAT(prompt(model, context, {Lane::kLong}, true), HasSubstr("does not show"));
}

std::string unfinished(std::string_view source, std::string_view content) {
  json::object context = conversation(1);
  context["messages"].as_array().push_back(
      {{"role", "assistant"}, {"content", json::string_view(content)}});
  return prompt(model_with(source), context, {Lane::kLong}, true);
}

// Any text: also one that contains the template's markers.
TEST(ChatPrompt, AContinuedMessageEndsWithItsText) {
  constexpr char kMarks[] =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  for (const std::string text : {"The answer", "end", "i", "<", "|", "m", "<|im_end|>\n", "a b \n ",
                                 "  a", "", " ", "</think>x", "<think>\nI"})
    EXPECT_EQ(unfinished(kMarks, text),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" + text)
        << text;
  EXPECT_EQ(unfinished("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", " b "),
            "[a][b ");
  EXPECT_EQ(unfinished("{% for m in messages %}[{% if m.content %}{{ m.content }}{% endif %}]"
                       "{% endfor %}",
                       ""),
            "[a][");
  EXPECT_EQ(unfinished("{% for m in messages %}[{{ m.content.split('</think>')[-1] }}]{% endfor %}",
                       "<think>b</think>\n\nc"),
            "[a][\n\nc");
  for (const char* source :
       {"{% for m in messages %}{{ m.content | upper }}{% endfor %}", "{{ messages[0].content }}"})
    EXPECT_THAT(unfinished(source, "b"), HasSubstr("does not show")) << source;
}

TEST(ChatPrompt, RolesAreThoseOfTheTemplate) {
  constexpr char kAny[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  constexpr char kSome[] =
      "{% for m in messages %}{% if m.role in ('system', 'user', 'critic') %}[{{ m.role }}]"
      "{{ m.content }}{% endif %}{% endfor %}";
  constexpr char kStrict[] =
      "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}"
      "{{ m.content }}{% endfor %}";
  const auto with = [](const char* source, const char* role) {
    json::object context = conversation(1);
    context["messages"].as_array().push_back({{"role", role}, {"content", "b"}});
    return prompt(model_with(source), context, {Lane::kLong});
  };
  EXPECT_EQ(with(kAny, "critic"), "[user]a[critic]b");
  EXPECT_EQ(with(kSome, "critic"), "[user]a[critic]b");
  EXPECT_EQ(with(kSome, "critik"), "error: the chat template has no role 'critik'");
  EXPECT_EQ(with(kStrict, "critic"), "error: the chat template has no role 'critic'");
  // The developer role where the template has it, else system.
  EXPECT_EQ(with(kSome, "developer"), "[user]a[system]b");
  constexpr char kDeveloper[] =
      "{% for m in messages %}{{ '<dev>' if m.role == 'developer' }}{{ m.content }}{% endfor %}";
  EXPECT_EQ(with(kDeveloper, "developer"), "a<dev>b");
}

}  // namespace
}  // namespace nereid::front
