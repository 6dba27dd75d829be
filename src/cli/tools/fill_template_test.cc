#include "cli/tools/fill_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "cli/repository/repository.h"
#include "cli/tools/tools.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(FillTemplate, SplitsAtCommasAndColonsWithEscapes) {
  const auto values =
      parse_substitutions(R"(a:1,b:,gpu_device_ids:0\,1;2\,3,url:http\\://x,e:\\\\n)");
  ASSERT_TRUE(values.ok()) << values.status();
  const Substitutions expected = {
      {"a", "1"}, {"b", ""}, {"gpu_device_ids", "0,1;2,3"}, {"url", "http://x"}, {"e", R"(\n)"}};
  EXPECT_EQ(*values, expected);
  for (const char* bad : {"", "a", "a:b,", "a:b:c", "engine_dir:C:/x", ",a:b"}) {
    const auto wrong = parse_substitutions(bad);
    EXPECT_FALSE(wrong.ok()) << bad;
    EXPECT_THAT(std::string(message(wrong.status())), HasSubstr("is not name:value")) << bad;
  }
}

TEST(FillTemplate, SubstitutesAsStringTemplateDoes) {
  const Substitutions values = {{"a", "1"}, {"b_2", "x y"}};
  EXPECT_EQ(substitute("${a} $a $b_2! ${b_2}", values), "1 1 x y! x y");
  EXPECT_EQ(substitute("${c} $c $$a $${a} $", values), "${c} $c $a ${a} $");
  EXPECT_EQ(substitute("${a ${} ${1} $1 ${a-b} $a$a", values), "${a ${} ${1} $1 ${a-b} 11");
  EXPECT_EQ(substitute("", values), "");
}

TEST(FillTemplate, FillsInSeveralPassesAndKnowsTheDefaults) {
  std::set<std::string> unused;
  const auto filled =
      fill_config("q=${max_queue_size} d=${max_queue_delay_microseconds} e=${engine_dir}", "f",
                  {{"max_queue_size", "4"}}, &unused);
  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(*filled, "q=4 d=0 e=${engine_dir}");
  EXPECT_THAT(unused, IsEmpty());
}

TEST(FillTemplate, NamesOfOtherTemplatesAreToleratedAndUnknownOnesAreNot) {
  const std::string text = "d=${tokenizer_dir}";
  std::set<std::string> unused;
  ASSERT_TRUE(
      fill_config(text, "f",
                  {{"max_queue_size", "0"}, {"tokenizer_type", "auto"}, {"tokenizer_dir", "t"}},
                  &unused)
          .ok());
  EXPECT_THAT(unused, UnorderedElementsAre("max_queue_size", "tokenizer_type"));
  const auto wrong = fill_config(text, "/r/config.pbtxt", {{"tokeniser_dir", "t"}}, &unused);
  EXPECT_EQ(message(wrong.status()),
            "key 'tokeniser_dir' does not exist in the file /r/config.pbtxt. Did you mean "
            "'tokenizer_dir'?");
}

int call(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  return fill_template_main(static_cast<int>(argv.size()), argv.data());
}

TEST(FillTemplate, WritesInPlaceOrPrintsAndFailsWithAStatus) {
  std::string name = (std::filesystem::temp_directory_path() / "nereid-XXXXXX").string();
  const std::filesystem::path dir = ::mkdtemp(name.data());
  const std::string file = dir / "config.pbtxt";
  ASSERT_TRUE(write_file_atomic(file, "a: ${engine_dir}\n").ok());
  testing::internal::CaptureStdout();
  EXPECT_EQ(call({"fill_template", file, "engine_dir:/e"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "a: /e\n\n");
  EXPECT_EQ(*read_file(file), "a: ${engine_dir}\n");
  EXPECT_EQ(call({"fill_template", file, "engine_dir:/e", "-i"}), 0);
  EXPECT_EQ(*read_file(file), "a: /e\n");
  EXPECT_EQ(call({"fill_template", "--in_place", file, "no_such_name:1"}), 1);
  EXPECT_EQ(call({"fill_template", "-i", file, "a"}), 1);
  EXPECT_EQ(call({"fill_template", "-i", (dir / "missing").string(), "a:b"}), 1);
  EXPECT_EQ(call({"fill_template", "-i", file}), 2);
  EXPECT_EQ(call({"fill_template", "--unknown", file, "a:b"}), 2);
  std::filesystem::remove_all(dir);
}

TEST(FillTemplate, TheGuidesCommandsFillEveryMandatoryPlaceholder) {
  const std::pair<const char*, const char*> commands[] = {
      {"ensemble", "triton_max_batch_size:4,logits_datatype:TYPE_FP32"},
      {"preprocessing",
       "tokenizer_dir:t,tokenizer_type:auto,triton_max_batch_size:4,preprocessing_instance_count:1,"
       "max_queue_size:0"},
      {"tensorrt_llm",
       "triton_backend:tensorrtllm,triton_max_batch_size:4,decoupled_mode:True,engine_dir:e,"
       "max_queue_delay_microseconds:0,batching_strategy:inflight_fused_batching,max_queue_size:0,"
       "encoder_input_features_data_type:TYPE_FP16,logits_datatype:TYPE_FP32,max_beam_width:1"},
      {"postprocessing",
       "tokenizer_dir:t,tokenizer_type:auto,triton_max_batch_size:4,postprocessing_instance_count:"
       "1,"
       "max_queue_size:0"},
      {"tensorrt_llm_bls",
       "triton_max_batch_size:4,decoupled_mode:True,bls_instance_count:1,accumulate_tokens:False,"
       "logits_datatype:TYPE_FP32,tensorrt_llm_model_name:tensorrt_llm"}};
  for (const auto& [model, command] : commands) {
    for (const auto& [name, text] : repository_templates()) {
      if (name != model) continue;
      std::set<std::string> unused;
      const auto filled = fill_config(text, model, *parse_substitutions(command), &unused);
      ASSERT_TRUE(filled.ok()) << filled.status();
      for (const char* type :
           {"data_type: ${logits", "count: ${", "max_batch_size: ${", "decoupled: ${",
            "backend: \"${", "max_queue_size: ${", "microseconds: ${"}) {
        EXPECT_THAT(*filled, testing::Not(HasSubstr(type))) << model;
      }
    }
  }
}

}  // namespace
}  // namespace nereid::cli
