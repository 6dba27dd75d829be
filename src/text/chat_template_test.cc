// The quick-start model's chat template against goldens, and the search for template files.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::text {
namespace {

const std::filesystem::path kSource = source_dir();

TEST(ChatTemplate, GoldensRenderAndTokeniseExactly) {
  const auto chat = load_chat_template(kSource / "models/quickstart");
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto tokenizer = Tokenizer::load(kSource / "models/quickstart");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto golden = read_json_file(kSource / "tests/golden/chat.json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const json::array& cases = golden->at("cases").as_array();
  ASSERT_FALSE(cases.empty());
  for (const json::value& c : cases) {
    json::object context;
    for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
      context[name] = c.at(name);
    }
    const auto text = chat->render(context);
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string want(c.at("text").as_string().c_str());
    EXPECT_EQ(*text, want) << c.at("name");
    std::vector<int32_t> ids;
    for (const json::value& id : c.at("ids").as_array()) ids.push_back(id.to_number<int32_t>());
    const auto encoded = (*tokenizer)->encode(*text, {.add_special_tokens = false});
    ASSERT_TRUE(encoded.ok());
    EXPECT_EQ(*encoded, ids) << c.at("name");
  }
  EXPECT_EQ(chat->special_token("eos_token"), "<|im_end|>");
  EXPECT_EQ(chat->special_token("bos_token"), "");
}

class ChatTemplateFiles : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) / "nereid_chat_template_test";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_ / "additional_chat_templates");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  void write(const char* name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  std::string render(const char* context = "{}") {
    const auto chat = load_chat_template(dir_);
    if (!chat.ok()) return std::string(message(chat.status()));
    const auto text = chat->render(parse_json(context)->as_object());
    return text.ok() ? *text : std::string(message(text.status()));
  }
  std::filesystem::path dir_;
};

TEST_F(ChatTemplateFiles, JinjaFileThenProcessorThenConfig) {
  EXPECT_THAT(render(), testing::HasSubstr("has no chat template"));
  write("tokenizer_config.json",
        R"({"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(render(), "config <s>");
  EXPECT_EQ(render(R"({"bos_token": "mine"})"), "config mine");
  write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(render(), "processor");
  write("chat_template.jinja", "file {{ eos_token }}");
  write("special_tokens_map.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(render(), "file </s>");
}

TEST_F(ChatTemplateFiles, NamedTemplatesServeToolsAndDocuments) {
  write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  write("additional_chat_templates/rag.jinja", "r");
  EXPECT_EQ(render(), "d");
  EXPECT_EQ(render(R"({"tools": []})"), "d");
  EXPECT_EQ(render(R"({"tools": [{}]})"), "t");
  EXPECT_EQ(render(R"({"documents": [{}]})"), "r");
}

// A template that takes long for a conversation of a few words does not keep a
// server from starting.
TEST_F(ChatTemplateFiles, OneThatTakesTooLongIsRefused) {
  for (const char* source :
       {"{% set a='a'*2000000 %}{{ ('a'*1000000 ~ 'b') in a }}",
        "a\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"}) {
    write("chat_template.jinja", source);
    EXPECT_THAT(render(),
                testing::AllOf(testing::HasSubstr("chat_template.jinja"),
                               testing::HasSubstr("conversation of a few words"),
                               testing::HasSubstr("200000 steps"), testing::HasSubstr("too m")));
  }
}

TEST_F(ChatTemplateFiles, ErrorsNameFileAndLine) {
  write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(render(), testing::AllOf(testing::HasSubstr("chat_template.jinja"),
                                       testing::HasSubstr("line 2")));
  write("chat_template.jinja", "a\n\n{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(render(), "line 3: roles must alternate");
}

}  // namespace
}  // namespace nereid::text
