#include "cli/repository/repository_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "cli/repository/repository.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

class RepositoryCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "nereid-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
    for (const char* backend :
         {"preprocessing", "postprocessing", "tensorrtllm", "tensorrt_llm_bls"}) {
      write(backends() / backend / ("libtriton_" + std::string(backend) + ".so"), "");
    }
    fs::create_directories(repository());
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path repository() const { return dir_ / "repository"; }
  fs::path backends() const { return dir_ / "backends"; }
  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    ASSERT_TRUE(write_file_atomic(path, text).ok());
  }
  void add(const std::string& model, const std::string& config) {
    fs::create_directories(repository() / model / "1");
    write(repository() / model / "config.pbtxt", config);
  }
  // The repository of our templates, filled as the guides do.
  void add_templates() {
    const Substitutions values = {{"triton_backend", "tensorrtllm"},
                                  {"triton_max_batch_size", "4"},
                                  {"decoupled_mode", "True"},
                                  {"max_queue_delay_microseconds", "0"},
                                  {"max_queue_size", "0"},
                                  {"engine_dir", dir_.string()},
                                  {"tokenizer_dir", dir_.string()},
                                  {"preprocessing_instance_count", "1"},
                                  {"postprocessing_instance_count", "1"},
                                  {"bls_instance_count", "1"}};
    for (const auto& [model, text] : repository_templates()) {
      add(std::string(model), substitute(text, values));
    }
  }
  void replace(const std::string& model, const std::string& from, const std::string& to) {
    const fs::path path = repository() / model / "config.pbtxt";
    std::string text = *read_file(path);
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    write(path, text);
  }
  std::vector<std::string> problems() const {
    std::vector<std::string> out;
    const auto checked = check_repository(repository(), backends());
    for (const auto& problem : checked->problems) {
      out.push_back(problem_text(problem).substr(repository().string().size() + 1));
    }
    return out;
  }

  fs::path dir_;
};

TEST_F(RepositoryCheckTest, FilledTemplatesHaveNone) {
  add_templates();
  EXPECT_THAT(problems(), IsEmpty());
  EXPECT_EQ(check_repository(repository(), backends())->num_models, 5u);
}

TEST_F(RepositoryCheckTest, EachEngineSaysWhereItRuns) {
  add_templates();
  replace("tensorrt_llm", "\"${tensor_parallel}\"", "\"2\"");
  replace("tensorrt_llm", "\"${device}\"", "\"cpu\"");
  const auto checked = check_repository(repository(), backends());
  EXPECT_THAT(checked->layouts,
              ElementsAre("tensorrt_llm: 2 ranks (tensor_parallel 2), threads of the server's "
                          "process, on cpu"));
  EXPECT_THAT(problems(), IsEmpty());
  replace("tensorrt_llm", "\"2\"", "\"99\"");
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("tensor_parallel")));
}

TEST_F(RepositoryCheckTest, EveryProblemAtOnceWithTheNearestName) {
  add_templates();
  replace("tensorrt_llm", "\"max_beam_width\"", "\"max_beam_with\"");
  replace("tensorrt_llm", "\"${batching_strategy}\"", "\"sometimes\"");
  replace("tensorrt_llm", "backend: \"tensorrtllm\"", "backend: \"tensorrtlm\"");
  replace("preprocessing", "data_type: TYPE_STRING", "data_type: TYPE_STRNG");
  replace("preprocessing", "instance_group", "instance_groups");
  replace("postprocessing", dir_.string(), "/no/such/folder");
  replace("ensemble", "model_name: \"postprocessing\"", "model_name: \"postprocesing\"");
  fs::remove_all(repository() / "tensorrt_llm_bls" / "1");
  const auto found = problems();
  EXPECT_THAT(found, Contains(HasSubstr("Did you mean 'tensorrtllm'?")));
  EXPECT_THAT(found, Contains(HasSubstr("TYPE_UINT8. Did you mean 'TYPE_STRING'?")));
  EXPECT_THAT(found, Contains(HasSubstr("has no such field. Did you mean 'instance_group'?")));
  EXPECT_THAT(found, Contains(HasSubstr("'/no/such/folder' does not exist")));
  EXPECT_THAT(found, Contains(HasSubstr("Did you mean 'postprocessing'?")));
  EXPECT_THAT(found, Contains(HasSubstr("tensorrt_llm_bls: there is no version folder")));
}

TEST_F(RepositoryCheckTest, ParametersByTheTable) {
  add_templates();
  replace("tensorrt_llm", "\"max_beam_width\"", "\"max_beam_with\"");
  replace("tensorrt_llm", "\"${batching_strategy}\"", "\"sometimes\"");
  replace("preprocessing", dir_.string(), "");
  EXPECT_THAT(problems(),
              ElementsAre(EndsWith("parameters 'tokenizer_dir': is mandatory and not set"),
                          EndsWith("backend tensorrtllm has no such parameter. Did you mean "
                                   "'max_beam_width'?"),
                          HasSubstr("parameters 'gpt_model_type': Invalid gpt_model_type")));
}

TEST_F(RepositoryCheckTest, EnsemblesReferToWhatIsThere) {
  const std::string io =
      "input { name: \"IN\" data_type: TYPE_INT32 dims: [ 1 ] }\n"
      "output { name: \"OUT\" data_type: TYPE_FP32 dims: [ 1 ] }\n";
  add("part",
      "backend: \"preprocessing\"\nparameters { key: \"tokenizer_dir\" value { string_value: \"/\" "
      "} }\n" +
          io);
  add("whole", "platform: \"ensemble\"\n" + io +
                   "ensemble_scheduling { step [ { model_name: \"part\" model_version: -1\n"
                   "input_map { key: \"IM\" value: \"IN\" }\n"
                   "output_map { key: \"OUT\" value: \"OUTT\" } } ] }");
  EXPECT_THAT(
      problems(),
      ElementsAre("whole/config.pbtxt:3: output 'OUT': is written by no step. Did you mean "
                  "'OUTT'?",
                  "whole/config.pbtxt:4: step 'part' input_map: lacks 'IN', which 'part' needs",
                  "whole/config.pbtxt:5: step 'part' input_map: 'part' has no input 'IM'. Did "
                  "you mean 'IN'?"));
}

// Each fault alone makes the server refuse the model.
TEST_F(RepositoryCheckTest, WhatTheServerRefusesIsReported) {
  const std::string begin =
      "backend: \"preprocessing\"\nparameters { key: \"tokenizer_dir\" value { string_value: \"/\" "
      "} }\n";
  const std::string io =
      "input { name: \"IN\" data_type: TYPE_INT32 dims: [ 2 ] }\n"
      "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ 2 ] }\n";
  add("m", begin + io + "max_batch_size: 4");
  EXPECT_THAT(problems(), IsEmpty());
  const std::pair<const char*, const char*> rows[] = {
      {"max_batch_size: -1", "'max_batch_size' must be non-negative value for m"},
      {"instance_group { kind: KIND_GPU }", "config.pbtxt:5: instance_group.kind: is KIND_GPU"},
      {"instance_group { kind: KIND_CPU gpus: [ 0 ] }", "instance_group.gpus: is given"},
      {"dynamic_batching { priority_levels: 2 default_priority_level: 3 } max_batch_size: 4",
       "default priority level must be in range [1, 2]"},
      {"response_cache { enable: true } model_transaction_policy { decoupled: true }",
       "Response Cache does not currently support model m with 'decoupled'"},
      {"model_warmup { name: \"w\" inputs { key: \"INN\" value { data_type: TYPE_INT32 dims: [ 2 ] "
       "zero_data: true } } }",
       "model_warmup 'w': has 'INN', which is no input. Did you mean 'IN'?"},
      {"model_warmup { name: \"w\" batch_size: 5 } max_batch_size: 4",
       "model_warmup 'w' batch_size: is 5, more than the max_batch_size 4"},
      {"sequence_batching { control_input { name: \"C\" control { kind: CONTROL_SEQUENCE_START } } "
       "}",
       "must specify either 'int32_false_true'"},
      {"input { name: \"X\" data_type: TYPE_INT32 dims: [ 4 ] reshape { shape: [ 2, 3 ] } }",
       "input 'X' reshape: has another number of elements"}};
  for (const auto& [text, wanted] : rows) {
    add("m", begin + io + text);
    EXPECT_THAT(problems(), ElementsAre(HasSubstr(wanted))) << text;
  }
}

TEST_F(RepositoryCheckTest, OtherConfigurationsAreCheckedToo) {
  const std::string good =
      "backend: \"preprocessing\"\nparameters { key: \"tokenizer_dir\" value { string_value: \"/\" "
      "} }\n";
  add("m", good);
  add("n", good);
  const auto add_config = [&](const std::string& name, const std::string& text) {
    write(repository() / "m" / "configs" / name, text);
  };
  add_config("large.pbtxt", good + "max_batch_size: -1");
  add_config("small.pbtxt", good + "max_batch_sise: 1");
  add_config("fine.pbtxt", good);
  EXPECT_THAT(problems(),
              ElementsAre(HasSubstr("m/configs/large.pbtxt: 'max_batch_size' must be non-negative"),
                          HasSubstr("m/configs/small.pbtxt:3: max_batch_sise: ")));
}

TEST_F(RepositoryCheckTest, HostileTextsAreReportedNotFollowed) {
  std::string deep = "backend: \"preprocessing\" input ";
  for (int i = 0; i < 5000; ++i) deep += "{ input ";
  for (const std::string& text :
       {deep, std::string("{{{{"), std::string("a: \"b"), std::string("]]]>>>"),
        std::string("a: ["), std::string("\xff\xfe: ${"), std::string("input: [ 1 2 , ] :"),
        std::string()}) {
    add("m", text);
    EXPECT_FALSE(problems().empty()) << text.substr(0, 30);
  }
  EXPECT_FALSE(check_repository(repository() / "none", backends()).ok());
}

}  // namespace
}  // namespace nereid::cli
