// docs/openai.md has the treatment of every field of a request, as the code has it.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing/written_part.h"
#include "front/openai/requests/infill.h"
#include "front/openai/requests/requests.h"
#include "front/openai/responses/responses_request.h"

namespace nereid::front {
namespace {

constexpr std::string_view kBegin = "<!-- begin of what fields_doc_test writes -->\n";
constexpr std::string_view kEnd = "<!-- end of what fields_doc_test writes -->\n";

std::string table_of_fields() {
  const std::pair<const char*, FieldUses> endpoints[] = {{"completions", completion_fields()},
                                                         {"chat/completions", chat_fields()},
                                                         {"responses", responses_fields()},
                                                         {"embeddings", embedding_fields()},
                                                         {"score", score_fields()},
                                                         {"rerank", rerank_fields()}};
  std::map<std::string, std::string> rows;
  std::string head = "| Field |", line = "|---|";
  for (const auto& [name, uses] : endpoints) {
    head += fmt::format(" {} |", name), line += "---|";
    for (const auto& [field, use] : uses) rows[field];
  }
  for (auto& [field, row] : rows) {
    row = fmt::format("| `{}` |", field);
    for (const auto& [name, uses] : endpoints) {
      const auto found = uses.find(field);
      row += found == uses.end()                         ? " |"
             : found->second == FieldUse::kHonoured      ? " yes |"
             : found->second == FieldUse::kWithoutEffect ? " no effect |"
                                                         : " refused |";
    }
  }
  std::string out = head + "\n" + line + "\n";
  for (const auto& [field, row] : rows) out += row + "\n";
  return out;
}

TEST(OpenAiDocs, TableOfFieldsIsWhatTheCodeDoes) {
  expect_written_part("/docs/openai.md", kBegin, kEnd, table_of_fields(),
                      "NEREID_WRITE_DOCS=1 front_openai_test --gtest_filter='OpenAiDocs.*'");
}

TEST(Infill, MarksOfTheVocabulary) {
  const auto marks_with = [](std::vector<std::string_view> tokens) {
    return find_fill_middle_tokens([=](std::string_view token) {
      return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
    });
  };
  EXPECT_EQ(marks_with({"<fim_prefix>", "<fim_suffix>"}), nullptr);
  const FillMiddleTokens* marks = marks_with({"<fim_prefix>", "<fim_middle>", "<fim_suffix>"});
  ASSERT_NE(marks, nullptr);
  EXPECT_EQ(fill_middle_prompt(*marks, "a(", ")b"), "<fim_prefix>a(<fim_suffix>)b<fim_middle>");
}

}  // namespace
}  // namespace nereid::front
