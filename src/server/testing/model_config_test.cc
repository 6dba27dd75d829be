// Parsing, defaults, refusals and JSON of model configurations.
#include "server/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"

namespace nereid::server {
namespace {

using testing::HasSubstr;

std::string error(const std::string& text) {
  const auto config = parse_model_config(text, "m/config.pbtxt", "m");
  return config.ok() ? "" : std::string(message(config.status()));
}

// A load request's configuration follows the rules of protobuf's JSON parser, as
// in the stock server.
TEST(ModelConfig, JsonAsProtobufTakesIt) {
  const auto read = [](const std::string& text) {
    ConfigSource source;
    source.text = text;
    source.is_json = true;
    source.model = "m";
    return parse_model_config(source);
  };
  const auto config = read(
      "{backend: 'x', \"maxBatchSize\": \"4\", \"platform\": null,"
      "\"input\": [{\"name\": \"a\", \"data_type\": \"type_fp32\", \"dims\": [\"1\", 2.0]}],}");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size, 4);
  EXPECT_EQ(config->inputs[0].datatype, TRITONSERVER_TYPE_FP32);
  EXPECT_EQ(config->inputs[0].dims, (std::vector<int64_t>{1, 2}));
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
  for (const std::string& text :
       {std::string("[]"), std::string("{} x"), std::string("{\"no\": 1}"),
        std::string("{\"name\": \"\\ud800\"}"), deep}) {
    EXPECT_THAT(std::string(message(read(text).status())), HasSubstr("Invalid config override"))
        << text.substr(0, 40);
  }
}

TEST(ModelConfig, ReadsOddSpellings) {
  const auto config = parse_model_config(
      "# comment\nname: \"m\", backend: 'x';\nmax_batch_size: 8\n"
      "input [ { name: \"a\", data_type: TYPE_INT32, dims: [ 1 ], reshape: { shape: [ ] }, "
      "optional: True } ]\n"
      "output < name: \"o\" data_type: 13 dims: -1 dims: -1 >\n"
      "output { name: \"o\" data_type: TYPE_STRING dims: [ -1, -1 ] }\n"
      "parameters { key: \"k\" value { string_value: \"a\" \"b\" } }\n"
      "model_transaction_policy { decoupled: t }\n",
      "m/config.pbtxt", "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size, 8);
  EXPECT_TRUE(config->decoupled);
  EXPECT_TRUE(config->inputs[0].optional);
  EXPECT_EQ(config->inputs[0].reshape, std::vector<int64_t>{});
  ASSERT_EQ(config->outputs.size(), 1u);
  EXPECT_EQ(config->outputs[0].datatype, TRITONSERVER_TYPE_BYTES);
  EXPECT_THAT(config->json, HasSubstr(R"("k":{"string_value":"ab"})"));
  EXPECT_EQ(config->groups.size(), 1u);
}

TEST(ModelConfig, SyntaxErrorsNameThePlace) {
  EXPECT_THAT(error("backend: \"x\"\nbogus: 1\n"), HasSubstr("m/config.pbtxt:2:"));
  EXPECT_THAT(error("max_batch_size: ${n"), HasSubstr("m/config.pbtxt:1:17:"));
  EXPECT_THAT(error("backend: \"a\"\nbackend: \"b\""), HasSubstr("m/config.pbtxt:2:"));
  EXPECT_THAT(error("input [ { name: \"a\" }, ]"), HasSubstr("m/config.pbtxt:1:"));
}

TEST(ModelConfig, ValuesAreChecked) {
  EXPECT_EQ(error("name: \"other\" backend: \"x\""),
            "unexpected directory name 'm' for model 'other', directory name must equal model name "
            "(m/config.pbtxt:1)");
  EXPECT_THAT(error("name: \"other\" platform: \"ensemble\""),
              HasSubstr("ensemble scheduling must be set for ensemble other"));
  EXPECT_THAT(error("backend: \"x\"\nmax_batch_size: -1"),
              HasSubstr("'max_batch_size' must be non-negative value for m (m/config.pbtxt:2)"));
  EXPECT_THAT(error("backend: \"x\" input { data_type: TYPE_INT8 dims: 1 }"),
              HasSubstr("must specify 'name'"));
  EXPECT_THAT(error("backend: \"x\" input { name: \"a\" dims: 1 }"),
              HasSubstr("must specify 'data_type'"));
  EXPECT_THAT(error("backend: \"x\" input { name: \"a\" data_type: TYPE_INT8 }"),
              HasSubstr("must specify 'dims'"));
  EXPECT_THAT(error("backend: \"x\" input { name: \"a\" data_type: TYPE_INT8 dims: 0 }"),
              HasSubstr("integer >= 1"));
  EXPECT_THAT(error("backend: \"../x\""),
              HasSubstr("backend library name '../x' escapes backend directory: 'backend' of m"));
  EXPECT_THAT(error("backend: \"x\"\nruntime: \"../r.so\""),
              HasSubstr("escapes backend directory: 'runtime' of m must be a plain name "
                        "(m/config.pbtxt:2)"));
  EXPECT_THAT(error("backend: \"x\" instance_group { kind: KIND_GPU }"),
              HasSubstr("no GPUs are available"));
  EXPECT_THAT(error("backend: \"x\"\ninstance_group { passive: true }"),
              HasSubstr("every instance group of model m is passive"));
  EXPECT_THAT(
      error("backend: \"x\" max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }"),
      HasSubstr("preferred size must be <= max batch size"));
  EXPECT_THAT(error("backend: \"x\" dynamic_batching { priority_levels: 2 }"),
              HasSubstr("default priority level must be in range [1, 2]"));
  const std::string policy = "priority_queue_policy { key: 3 value { max_queue_size: 1 } } }";
  EXPECT_EQ(error("backend: \"x\" dynamic_batching { " + policy), "") << "no levels, a warning";
  EXPECT_THAT(error("backend: \"x\" dynamic_batching { priority_levels: 2 "
                    "default_priority_level: 1 " +
                    policy),
              HasSubstr("must have priority level in range [1, 2]"));
  EXPECT_THAT(error("backend: \"x\" dynamic_batching { priority_levels: 2 "
                    "default_priority_level: 1 preserve_ordering: true }"),
              HasSubstr("Only one priority level is allowed"));
  EXPECT_THAT(error("backend: \"x\" response_cache { enable: true } "
                    "model_transaction_policy { decoupled: true }"),
              HasSubstr("Response Cache does not currently support"));
  EXPECT_THAT(error(""), HasSubstr("Could not determine backend for model 'm'"));
}

TEST(ModelConfig, BackendPlatformAndFileFollowFromEachOther) {
  namespace fs = std::filesystem;
  std::string name = (fs::temp_directory_path() / "nereid-config-XXXXXX").string();
  const fs::path dir = mkdtemp(name.data());
  const auto given = [&](const std::string& text, const std::string& model = "m") {
    ConfigSource source;
    source.text = text;
    source.model = model;
    source.dir = dir;
    const auto config = parse_model_config(source);
    if (!config.ok()) return std::string(message(config.status()));
    const auto json = *parse_json(config->json);
    const auto& file = json.at("default_model_filename").as_string();
    return config->backend + "," + config->platform + "," + std::string(file);
  };
  EXPECT_EQ(given("platform: \"onnxruntime_onnx\""), "onnxruntime,onnxruntime_onnx,model.onnx");
  EXPECT_EQ(given("backend: \"pytorch\""), "pytorch,pytorch_libtorch,model.pt");
  EXPECT_EQ(given("backend: \"pytorch\" runtime: \"model.py\""), "pytorch,pytorch_libtorch,");
  EXPECT_EQ(given("backend: \"python\""), "python,,model.py");
  EXPECT_EQ(given("backend: \"other\""), "other,,");
  EXPECT_EQ(given("default_model_filename: \"model.graphdef\""),
            "tensorflow,tensorflow_graphdef,model.graphdef");
  EXPECT_EQ(given("", "x.y.z"), "y.z,,model.y.z");
  EXPECT_THAT(given(""), HasSubstr("Could not determine backend for model 'm'"));
  fs::create_directories(dir / "1");
  std::ofstream(dir / "1" / "model.plan") << "x";
  EXPECT_EQ(given(""), "tensorrt,tensorrt_plan,model.plan");
  EXPECT_EQ(given("default_model_filename: \"mine\" platform: \"tensorrt_plan\""),
            "tensorrt,tensorrt_plan,mine");
  fs::remove_all(dir);
}

TEST(ModelConfig, AReshapeKeepsThePartsBetweenVariableDimensions) {
  const auto with = [](const std::string& dims, const std::string& shape, int batch = 0) {
    return error("backend: \"x\" max_batch_size: " + std::to_string(batch) +
                 " output { name: \"o\" data_type: TYPE_INT8 dims: [" + dims +
                 "] reshape { shape: [" + shape + "] } }");
  };
  const std::string tensor = "model output 'o' ";
  EXPECT_EQ(with("2, 4, -1, 6", "8, -1, 1, 6"), "");
  EXPECT_EQ(with("6", "2, 3"), "");
  EXPECT_EQ(with("1", "", 4), "");
  for (const auto& [dims, shape] :
       {std::pair("6", "5"), std::pair("-1", "4"), std::pair("4", "-1"),
        std::pair("2, -1", "-1, 2"), std::pair("2, -1, 4", "4, -1, 2"), std::pair("2", "")}) {
    EXPECT_THAT(with(dims, shape, 4),
                HasSubstr(tensor + "has different size for dims and reshape for m"))
        << dims;
  }
  EXPECT_THAT(with("-1, 2", "-1, -1, 2"),
              HasSubstr("has different number of variable-size dimensions for dims and reshape "
                        "for m"));
  EXPECT_THAT(with("1", ""),
              HasSubstr(tensor + "cannot have empty reshape for non-batching model as scalar "
                                 "tensors are not supported for m"));
  EXPECT_THAT(with("4", "0"), HasSubstr(tensor + "reshape dimensions must be integer >= 1, or -1"));
}

// Backends make these tensors themselves; they read them in the JSON.
TEST(ModelConfig, BatchTensorsAreCheckedAndPassedOn) {
  const auto with = [](const std::string& more) {
    return "backend: \"x\" input { name: \"I\" data_type: TYPE_INT32 dims: -1 }\n"
           "output { name: \"O\" data_type: TYPE_INT32 dims: -1 }\n" +
           more;
  };
  const std::string input =
      "batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: \"T\" ";
  const auto config = parse_model_config(
      with(input + "data_type: TYPE_FP32 source_input: \"I\" }\nbatch_output { target_name: \"O\" "
                   "kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: \"I\" }"),
      "m/config.pbtxt", "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->json, HasSubstr(R"("kind":"BATCH_ACCUMULATED_ELEMENT_COUNT")"));
  EXPECT_THAT(config->json, HasSubstr(R"("batch_output":[{"target_name":["O"])"));
  EXPECT_THAT(error(with(input + "data_type: TYPE_INT8 source_input: \"I\" }")),
              HasSubstr("must be TYPE_INT32 or TYPE_FP32, not TYPE_INT8 for m (m/config.pbtxt:3)"));
  EXPECT_THAT(
      error(with(input + "data_type: TYPE_FP32 }")),
      HasSubstr("batch input kind 'BATCH_ACCUMULATED_ELEMENT_COUNT' expects 1 source input, "
                "got 0 for m"));
  EXPECT_THAT(error(with(input + "data_type: TYPE_FP32 source_input: \"J\" }")),
              HasSubstr("unknown source input name 'J' for m"));
  EXPECT_THAT(error(with("batch_output { target_name: \"P\" source_input: \"I\" }")),
              HasSubstr("unknown target output name 'P' for m"));
  EXPECT_THAT(error(with("batch_output { target_name: [ \"O\", \"O\" ] source_input: \"I\" }")),
              HasSubstr("target output name 'O' can only be specified once for m"));
}

TEST(ModelConfig, UnfilledDataTypesAreFloats) {
  EXPECT_EQ(
      error("backend: \"x\" output [ { name: \"o\" data_type: ${logits_datatype} dims: 1 } ]"), "");
  EXPECT_EQ(error("backend: \"x\" max_batch_size: ${n} # ${more}\n"
                  "instance_group [ { count: ${m} kind: KIND_CPU } ]"),
            "");
  EXPECT_THAT(error("backend: \"x\"\nmax_batch_size: ${triton_max_batch_size}"),
              HasSubstr("config.pbtxt:2: ${triton_max_batch_size} is not filled in"));
  EXPECT_THAT(error("backend: \"${triton_backend}\""), HasSubstr("${triton_backend}"));
  EXPECT_THAT(error("backend: \"x\" input { data_type: ${"), HasSubstr("config.pbtxt:1:"));
}

TEST(ModelConfig, EnsembleGraphsAreChecked) {
  const std::string head =
      "platform: \"ensemble\" input { name: \"I\" data_type: TYPE_INT32 dims: 1 }\n"
      "output { name: \"O\" data_type: TYPE_INT32 dims: 1 }\nensemble_scheduling { ";
  const auto step = [](const std::string& in, const std::string& out) {
    return "step { model_name: \"x\" input_map { key: \"a\" value: \"" + in +
           "\" } output_map { key: \"b\" value: \"" + out + "\" } } ";
  };
  EXPECT_EQ(error(head + step("I", "O") + "}"), "");
  EXPECT_THAT(error(head + "}"), HasSubstr("must specify 'step' for ensemble 'm'"));
  EXPECT_THAT(error("instance_group { gpus: 42 } " + head + "}"),
              HasSubstr("instance group should not be specified for ensemble 'm'"));
  EXPECT_THAT(error("optimization { priority: PRIORITY_MAX } " + head + "}"),
              HasSubstr("optimization should not be specified for ensemble 'm'"));
  EXPECT_THAT(error("model_warmup { name: \"w\" } " + head + "}"),
              HasSubstr("model_warmup can not be specified for ensemble 'm'"));
  EXPECT_THAT(error(head + step("I", "O") + step("I", "O") + "}"),
              HasSubstr("can appear in an output map only once"));
  EXPECT_THAT(error(head + step("I", "P") + "}"), HasSubstr("ensemble output 'O'"));
  EXPECT_THAT(error(head + step("I", "P") + step("Q", "O") + step("O", "Q") + "}"),
              HasSubstr("is not written"));
  EXPECT_THAT(error(head + step("I", "O") + step("I", "P") + "}"),
              HasSubstr("ensemble tensor 'P' is unused"));
}

TEST(ModelConfig, JsonHasNumbersWhereClientsExpectThem) {
  const auto config = parse_model_config(
      "backend: \"x\" max_batch_size: 4 version_policy { specific { versions: [ 1, 3 ] } }\n"
      "input { name: \"a\" data_type: TYPE_INT32 dims: [ 2, -1 ] }\n"
      "dynamic_batching { priority_levels: 18446744073709551615 default_priority_level: 1\n"
      "default_queue_policy { default_timeout_microseconds: 5 } }\n"
      "parameters { key: \"dims\" value { string_value: \"7\" } }",
      "m/config.pbtxt", "m");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->json, HasSubstr(R"("dims":[2,-1])"));
  EXPECT_THAT(config->json, HasSubstr(R"("versions":[1,3])"));
  EXPECT_THAT(config->json, HasSubstr(R"("default_timeout_microseconds":5)"));
  EXPECT_THAT(config->json, HasSubstr(R"("priority_levels":18446744073709551615)"));
  EXPECT_THAT(config->json, HasSubstr(R"("dims":{"string_value":"7"})"));
  EXPECT_THAT(config->json, HasSubstr(R"("preferred_batch_size":[4])"));
}

TEST(ModelConfig, MetricBuckets) {
  const auto parse = [](const std::string& family, const std::string& buckets) {
    return parse_model_config(
        "backend: \"x\"\nmodel_metrics { metric_control { metric_identifier { "
        "family: \"" +
            family + "\" } histogram_options { buckets: [ " + buckets + " ] } } }",
        "m/config.pbtxt", "m");
  };
  const auto good = parse("nv_inference_first_response_histogram_ms", "1, 2.5");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->first_response_buckets, (std::vector<double>{1, 2.5}));
  for (const auto& bad :
       {parse("nv_inference_first_response_histogram_ms", "2, 2"), parse("nv_other", "1")}) {
    ASSERT_FALSE(bad.ok());
    EXPECT_THAT(message(bad.status()), HasSubstr("model_metrics"));
    EXPECT_THAT(message(bad.status()), HasSubstr("m/config.pbtxt:2"));
  }
}

// The shipped templates, filled as by a launcher.
TEST(ModelConfig, TemplatesAreValid) {
  const std::filesystem::path root = source_dir() + "/all_models/inflight_batcher_llm";
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    std::string text = *read_file(entry.path() / "config.pbtxt");
    const auto fill = [&](const std::string& name, const std::string& value) {
      for (size_t at; (at = text.find("${" + name + "}")) != std::string::npos;) {
        text.replace(at, name.size() + 3, value);
      }
    };
    fill("triton_backend", "tensorrtllm");
    fill("triton_max_batch_size", "4");
    fill("decoupled_mode", "true");
    for (const char* name : {"preprocessing", "postprocessing", "bls"})
      fill(std::string(name) + "_instance_count", "1");
    const std::string name = entry.path().filename().string();
    const auto config = parse_model_config(text, name, name);
    EXPECT_TRUE(config.ok()) << config.status();
    ++count;
  }
  EXPECT_EQ(count, 5);
}

std::string sequence_error(const std::string& more) {
  const auto config = parse_model_config(
      "name: \"m\" backend: \"b\" max_batch_size: 2 sequence_batching { " + more + " }", "p", "m");
  return std::string(message(config.status()));
}

TEST(ModelConfig, SequenceBatchingIsRead) {
  const auto config = parse_model_config(
      "name: \"m\" backend: \"b\" max_batch_size: 2 sequence_batching { oldest { "
      "max_candidate_sequences: 3 } control_input { name: \"S\" control { kind: "
      "CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } } state { input_name: \"i\" "
      "output_name: \"o\" data_type: TYPE_FP32 dims: [ -1, 2 ] } }",
      "p", "m");
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_TRUE(config->sequences.has_value());
  const auto& s = *config->sequences;
  EXPECT_TRUE(s.oldest);
  EXPECT_EQ(s.max_idle_us, 1000000u);
  EXPECT_EQ(s.max_candidates, 3u);
  EXPECT_EQ(s.preferred_sizes, std::vector<int32_t>{2});
  ASSERT_EQ(s.controls.size(), 1u);
  EXPECT_EQ(s.controls[0].datatype, TRITONSERVER_TYPE_BOOL);
  EXPECT_EQ(s.controls[0].yes, std::string(1, 1));
  ASSERT_EQ(s.states.size(), 1u);
  EXPECT_EQ(s.states[0].initial_dims, (std::vector<int64_t>{1, 2}));
  EXPECT_NE(config->json.find("\"max_sequence_idle_microseconds\":1000000"), std::string::npos);
}

TEST(ModelConfig, SequenceBatchingErrorsNameTheField) {
  EXPECT_THAT(sequence_error("direct { minimum_slot_utilization: 2 }"),
              testing::HasSubstr("minimum slot utilization must be in range (0.0, 1.0] for m"));
  EXPECT_THAT(sequence_error("oldest { preferred_batch_size: 3 }"),
              testing::HasSubstr("preferred batch size must be <= max batch size for m"));
  EXPECT_THAT(sequence_error("control_input { name: \"A\" control { kind: "
                             "CONTROL_SEQUENCE_START } }"),
              testing::HasSubstr("must specify either 'int32_false_true', 'fp32_false_true' or "
                                 "'bool_false_true' for CONTROL_SEQUENCE_START for m"));
  EXPECT_THAT(sequence_error("control_input { name: \"A\" control { kind: "
                             "CONTROL_SEQUENCE_END int32_false_true: [ 0, 1, 2 ] } }"),
              testing::HasSubstr("must have exactly 2 entries for CONTROL_SEQUENCE_END for m"));
  EXPECT_THAT(sequence_error("control_input { name: \"A\" control { kind: "
                             "CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } }"),
              testing::HasSubstr("unexpected data type for control CONTROL_SEQUENCE_CORRID for m"));
  EXPECT_THAT(sequence_error("state { input_name: \"i\" output_name: \"o\" data_type: TYPE_FP32 "
                             "dims: 2 initial_state { name: \"x\" data_type: TYPE_FP32 dims: 3 "
                             "zero_data: true } }"),
              testing::HasSubstr("doesn't match 'state' dim description. 3 != 2"));
  EXPECT_THAT(sequence_error("state { input_name: \"i\" output_name: \"o\" data_type: TYPE_FP32 "
                             "dims: 2 initial_state { name: \"x\" data_type: TYPE_FP32 dims: 2 "
                             "data_file: \"../x\" } }"),
              testing::HasSubstr("is not a file below initial_state"));
}

}  // namespace
}  // namespace nereid::server
