#include "cli/flags/yaml_file.h"

#include <gmock/gmock.h>

namespace nereid::cli {
namespace {

using testing::HasSubstr;

std::string yaml(std::string_view text) {
  const auto value = parse_yaml(text);
  return value.ok() ? json::serialize(*value) : std::string(message(value.status()));
}

TEST(Yaml, PlainWordsHaveTypes) {
  EXPECT_EQ(yaml("a: 1\nb: -2.5\nc: yes\nd: Off\ne: ~\nf: word\ng: 1e3\nh:\n"),
            R"({"a":1,"b":-2.5E0,"c":true,"d":false,"e":null,"f":"word","g":1E3,"h":null})");
  EXPECT_EQ(yaml("[\"1\", 'true', inf, 12ab, +7]"), R"(["1","true","inf","12ab",7])");
  EXPECT_EQ(yaml(""), "null");
  EXPECT_EQ(yaml("# nothing\n"), "null");
}

TEST(Yaml, NestingFlowAndAliases) {
  EXPECT_EQ(yaml("kv: {reuse: true, window: [1, 2]}\nlist:\n- a\n- b: 3\n"),
            R"({"kv":{"reuse":true,"window":[1,2]},"list":["a",{"b":3}]})");
  EXPECT_EQ(yaml("a: &x {b: 1}\nc: *x\n"), R"({"a":{"b":1},"c":{"b":1}})");
}

TEST(Yaml, HostileTexts) {
  EXPECT_THAT(yaml("a: 1\nb: [\n"), HasSubstr("line 3"));
  EXPECT_THAT(yaml("a: 1\na: 2\n"), HasSubstr("line 2: 'a' is there twice"));
  EXPECT_THAT(yaml("[1]: 2\n"), HasSubstr("a key must be text"));
  EXPECT_THAT(yaml("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(yaml("a: *missing\n"), HasSubstr("undefined alias"));
  EXPECT_THAT(yaml(std::string(100, '[') + std::string(100, ']')), HasSubstr("nesting beyond 64"));
  // Ten levels of ten aliases each.
  std::string bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 10; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("{}*a{}", j ? ", " : "", i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(yaml(bomb), HasSubstr("more than 100000 values"));
  EXPECT_THAT(yaml("a: &x [*x]\n"), HasSubstr("nesting beyond 64"));
}

TEST(Yaml, FilesAreNamed) {
  EXPECT_THAT(std::string(message(read_yaml_file("/no/such.yaml").status())),
              HasSubstr("/no/such.yaml"));
}

}  // namespace
}  // namespace nereid::cli
