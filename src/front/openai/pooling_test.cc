#include "front/openai/pooling.h"

#include <gmock/gmock.h>

#include "base/file.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

TEST(Pooling, IsWhatTheFilesOfSentenceTransformersSay) {
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / "pooling_of_a_checkpoint";
  std::filesystem::create_directories(dir / "1_Pooling");
  std::filesystem::create_directories(dir / "2_Pooling");
  const auto write = [&](const char* name, std::string_view text) {
    EXPECT_TRUE(write_file_atomic(dir / name, text).ok());
  };
  std::filesystem::remove(dir / "1_Pooling/config.json");
  EXPECT_EQ(*pooling_of(dir), "last");
  write("1_Pooling/config.json",
        R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": false,
            "pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})");
  EXPECT_EQ(*pooling_of(dir), "mean");
  write("2_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
      {"path": "2_Pooling", "type": "sentence_transformers.models.Pooling"},
      {"path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}])");
  EXPECT_EQ(*pooling_of(dir), "last");
  write("2_Pooling/config.json",
        R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})");
  EXPECT_THAT(std::string(message(pooling_of(dir).status())),
              HasSubstr("'cls_token, mean_tokens' is not supported"));
  write("modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  EXPECT_THAT(std::string(message(pooling_of(dir).status())), HasSubstr("a module 'Dense'"));
  write("modules.json", "[");
  EXPECT_FALSE(pooling_of(dir).ok());
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nereid::front
