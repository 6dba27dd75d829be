#include "hub/model_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::hub {
namespace {

using ::testing::HasSubstr;

TEST(ModelName, Parts) {
  const auto plain = parse_model_name("hf://Qwen/Qwen2.5-0.5B");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->id(), "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(plain->revision, "main");
  EXPECT_EQ(plain->text(), "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(plain->folder(), "Qwen--Qwen2.5-0.5B");
  const auto whole = parse_model_name("a/b_c@refs/pr/1:sub/x-00001-of-00002.gguf");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->revision, "refs/pr/1");
  EXPECT_EQ(whole->file, "sub/x-00001-of-00002.gguf");
  EXPECT_EQ(whole->text(), "a/b_c@refs/pr/1:sub/x-00001-of-00002.gguf");
}

TEST(ModelName, RefusedByName) {
  for (const char* text : {"",
                           "hf://",
                           "a",
                           "a/",
                           "/b",
                           "a/b/c",
                           "../b",
                           "a/..",
                           "a/b..c",
                           "a--b/c",
                           "-a/b",
                           "a/b@",
                           "a/b@../x",
                           "a/b@-x",
                           "a/b@x//y",
                           "a/b@/x",
                           "a b/c",
                           "a/b:",
                           "a/b:x.safetensors",
                           "a/b:../x.gguf",
                           "a/b:/x.gguf",
                           "a/b:.x.gguf",
                           "a/b?x",
                           "a/b%2fc",
                           "a/b\n"})
    EXPECT_FALSE(parse_model_name(text).ok()) << text;
  EXPECT_THAT(std::string(message(parse_model_name("a/b@..").status())),
              HasSubstr("'..' is no revision"));
  EXPECT_THAT(std::string(message(parse_model_name("x").status())),
              HasSubstr("'x' is no name of a model; allowed: ORG/NAME"));
}

TEST(ModelName, KindsOfFiles) {
  EXPECT_EQ(kind_of("config.json"), FileKind::kText);
  EXPECT_EQ(kind_of("1_Pooling/config.json"), FileKind::kText);
  EXPECT_EQ(kind_of("tokenizer.model"), FileKind::kText);
  EXPECT_EQ(kind_of("chat_template.jinja"), FileKind::kText);
  EXPECT_EQ(kind_of("model.safetensors"), FileKind::kSafetensors);
  EXPECT_EQ(kind_of("m.gguf"), FileKind::kGguf);
  for (const char* file :
       {"pytorch_model.bin", "modeling_x.py", "a.pt", "x.pkl", "README.md", "x.SAFETENSORS",
        ".hidden.json", "a/.git/config.json", "\xc3\xa9.json", "json"})
    EXPECT_EQ(kind_of(file), FileKind::kOther) << file;
  EXPECT_EQ(kind_of(std::string(201, 'a') + ".json"), FileKind::kOther);
  EXPECT_EQ(kind_of("1/2/3/4/5/6/7/8/9.json"), FileKind::kOther);
}

TEST(ModelName, HostileFileNamesAreRefused) {
  for (const std::string& file :
       {std::string("../x.json"), std::string("a/../../x"), std::string("/etc/passwd"),
        std::string("a\\b.json"), std::string("a\nb"), std::string("a\0b", 3), std::string("a//b"),
        std::string("a/"), std::string("./a"), std::string(""), std::string("a\x7f"),
        std::string(1001, 'a')})
    EXPECT_FALSE(check_file_name(file).ok()) << file;
  EXPECT_EQ(message(check_file_name("x/../y")),
            "file name 'x/../y' leads out of its folder; refused");
  EXPECT_EQ(message(check_file_name("x\x1b[2J")),
            "file name 'x\\x1b[2J' has a control character; refused");
  EXPECT_TRUE(check_file_name("..a/b...json").ok());
}

TEST(ModelName, UrlsAndCommits) {
  EXPECT_EQ(url_path("a b/c?#%.json"), "a%20b/c%3F%23%25.json");
  EXPECT_EQ(url_path("refs/pr/1", true), "refs%2Fpr%2F1");
  EXPECT_TRUE(is_commit(std::string(40, 'a')));
  EXPECT_FALSE(is_commit(std::string(40, 'A')));
  EXPECT_FALSE(is_commit(std::string(39, 'a')));
}

}  // namespace
}  // namespace nereid::hub
