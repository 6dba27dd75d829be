#include "server/scripts/known_scripts.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"

namespace nereid::server {
namespace {

constexpr char kScript[] =
    "import json  # a comment\n"
    "\n"
    "class TritonPythonModel:\n"
    "    def execute(self, requests):\n"
    "        return ['a b', \"c\",]\n";

TEST(KnownScripts, LayoutDoesNotCount) {
  EXPECT_EQ(script_fingerprint(kScript),
            script_fingerprint("import json\nclass TritonPythonModel:\n"
                               "  def execute(\n      self,\n      requests,\n  ):\n"
                               "    return [\"a b\", 'c']  # 'quoted' \"comment\n"));
}

TEST(KnownScripts, ChangesCount) {
  const uint64_t original = script_fingerprint(kScript);
  const std::string text = kScript;
  for (const auto& [from, to] : {std::pair{"'a b'", "'ab'"},
                                 {"\"c\"", "\"C\""},
                                 {"requests", "request"},
                                 {"return [", "return not ["},
                                 {"import json", "importjson"}}) {
    std::string changed = text;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_NE(script_fingerprint(changed), original) << from;
  }
}

TEST(KnownScripts, HostileTexts) {
  for (const char* text : {"", "'", "\"\"\"", "'\\", "#", "\\", "'''a''", "\"\"", ",)"}) {
    script_fingerprint(text);
  }
}

TEST(KnownScripts, AChangedOneIsToldFromAnUnknownOne) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-XXXXXX").string();
  const std::filesystem::path dir = ::mkdtemp(name.data());
  EXPECT_EQ(identify_script(dir).resembles, "");
  ASSERT_TRUE(write_file_atomic(dir / "model.py", kScript).ok());
  EXPECT_EQ(identify_script(dir).backend, "");
  EXPECT_EQ(identify_script(dir).resembles, "");
  std::string changed(kScript);
  changed += "# tokenizer_dir REQUEST_INPUT_LEN STOP_WORDS_DICT";
  ASSERT_TRUE(write_file_atomic(dir / "model.py", changed).ok());
  EXPECT_EQ(identify_script(dir).backend, "");
  EXPECT_EQ(identify_script(dir).resembles, "preprocessing");
  EXPECT_EQ(identify_script(dir).missing, "");
  ASSERT_TRUE(
      write_file_atomic(dir / "model.py", std::string(kScript) + "# WAV TRANSCRIPTS n_mels").ok());
  EXPECT_EQ(identify_script(dir).resembles, "whisper_bls");
  ASSERT_TRUE(write_file_atomic(dir / "model.py",
                                std::string(kScript) + "# IMAGE OUT_PROMPT_EMBEDDING_TABLE")
                  .ok());
  EXPECT_EQ(identify_script(dir).resembles, "multimodal_encoders");
  const std::pair<const char*, const char*> missing[] = {
      {"disaggregated_serving_bls", "'context_only' 'generation_only'"},
      {"gpt", "tensorrt_llm.runtime SamplingConfig 'runtime_top_k'"},
      {"llmapi", "import tensorrt_llm; 'model.yaml' 'sampling_param_top_k'"}};
  for (const auto& [model, words] : missing) {
    ASSERT_TRUE(write_file_atomic(dir / "model.py", kScript + std::string("\n# ") + words).ok());
    EXPECT_EQ(identify_script(dir).missing, model);
    EXPECT_EQ(identify_script(dir).resembles, "");
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nereid::server
