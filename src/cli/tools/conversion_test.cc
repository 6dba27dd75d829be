// The command lines of users' scripts for GPT-2, run by the tools' entry functions.
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "cli/tools/tools.h"
#include "convert/engine_dir.h"
#include "io/engine_file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "kernels/open.h"
#include "nereid/executor.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

class ConversionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/conversion.XXXXXX";
    dir_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // "$M" is the tiny GPT-2, "$D" a folder; words are separated by one blank.
  int run(int (*tool)(int, char**), std::string line) {
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>("$M", kGpt2), {"$D", dir_.string()}})
      for (size_t at = line.find(from); at != line.npos; at = line.find(from))
        line.replace(at, from.size(), to);
    std::vector<std::string> words;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(' ', begin), line.size());
      words.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = tool(static_cast<int>(argv.size()), argv.data());
    out_ = testing::internal::GetCapturedStdout();
    error_ = testing::internal::GetCapturedStderr();
    return code;
  }
  int convert(const std::string& line) {
    return run(convert_checkpoint_main, "convert_checkpoint.py " + line);
  }
  int build(const std::string& line) { return run(trtllm_build_main, "trtllm-build " + line); }

  // The weight values that the engine computes with.
  std::string weights(const std::string& engine) {
    const auto device = kernels::open_device("cpu", {});
    EXPECT_TRUE(device.ok()) << device.status();
    const auto merged = convert::ensure_engine(
        dir_ / engine, device->registry, device->device->info(), {.cache_dir = dir_ / "cache"});
    EXPECT_TRUE(merged.ok()) << merged.status();
    if (!merged.ok()) return "";
    const auto file = io::EngineFile::open(*merged, io::Verify::kFull);
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return "";
    return {reinterpret_cast<const char*>(file->blob().data()), file->blob().size()};
  }
  convert::EngineLimits limits(const std::string& engine) {
    return convert::read_engine_limits(dir_ / engine)->value();
  }

  const std::string kGpt2 = source_dir() + "/tests/models/gpt2";
  std::filesystem::path dir_;
  std::string out_, error_;
};

TEST_F(ConversionTest, Gpt2OnOneRank) {
  ASSERT_EQ(convert("--model_dir $M --dtype float16 --output_dir $D/fp16/1-gpu"), 0) << error_;
  EXPECT_THAT(out_, HasSubstr("Total time of converting checkpoints: 00:00:"));
  ASSERT_EQ(build("--checkpoint_dir $D/fp16/1-gpu --output_dir $D/engines/1-gpu"), 0) << error_;
  EXPECT_THAT(out_, HasSubstr("Total time of building all engines: 00:00:"));
  EXPECT_EQ(limits("engines/1-gpu").max_batch_size, 2048);
  EXPECT_FALSE(limits("engines/1-gpu").gather_context_logits);
}

TEST_F(ConversionTest, Gpt2OnSeveralRanksGivesTheSameEngine) {
  ASSERT_EQ(convert("--model_dir=$M --dtype bfloat16 --output_dir=$D/one"), 0) << error_;
  ASSERT_EQ(convert("--model_dir $M --dtype bfloat16 --tp_size 3 --pp_size 2 --workers 6 "
                    "--use_parallel_embedding --embedding_sharding_dim 0 --output_dir $D/six"),
            0)
      << error_;
  EXPECT_THAT(error_ + out_, HasSubstr("--workers"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "six/rank5.safetensors"));
  const std::string flags =
      " --gpt_attention_plugin float16 --remove_input_padding enable --kv_cache_type paged "
      "--gemm_plugin float16 --max_batch_size 8 --max_input_len 32 --max_seq_len 96 "
      "--max_num_tokens 64 --max_beam_width 2 --gather_all_token_logits";
  for (const char* ranks : {"one", "six"}) {
    const std::string to = std::string(" --output_dir $D/engine-") + ranks;
    ASSERT_EQ(build(std::string("--checkpoint_dir $D/") + ranks + flags + to), 0) << error_;
    const convert::EngineLimits built = limits(std::string("engine-") + ranks);
    EXPECT_EQ(built.max_batch_size, 8);
    EXPECT_EQ(built.max_num_tokens, 64);
    EXPECT_EQ(built.max_beam_width, 2);
    EXPECT_TRUE(built.gather_context_logits);
    EXPECT_EQ(convert::read_facts(dir_ / (std::string("engine-") + ranks))->max_positions, 96);
  }
  EXPECT_TRUE(std::filesystem::exists(dir_ / "engine-six/rank5.engine"));
  EXPECT_TRUE(weights("engine-one") == weights("engine-six"));
}

TEST_F(ConversionTest, TheOldestFlagsAreTaken) {
  ASSERT_EQ(convert("--model_dir $M --output_dir $D/ckpt"), 0) << error_;
  ASSERT_EQ(build("--checkpoint_dir $D/ckpt --output_dir $D/engine --paged_kv_cache enable "
                  "--max_input_len 40 --max_output_len 20 --context_fmha disable "
                  "--use_custom_all_reduce enable --workers 2 --max_multimodal_len 96"),
            0)
      << error_;
  EXPECT_EQ(convert::read_facts(dir_ / "engine")->max_positions, 60);
  EXPECT_EQ(limits("engine").max_input_len, 40);
  const json::value config = read_json_file(dir_ / "engine/config.json").value();
  EXPECT_EQ(config.at("build_config").at("max_prompt_embedding_table_size"), 96);
}

TEST_F(ConversionTest, AnEngineTakesAdaptersOfItsRank) {
  const std::string top = source_dir();
  const std::string to = "--checkpoint_dir " + top + "/models/quickstart --output_dir $D/engine";
  const std::string adapter = " --lora_dir " + top + "/tests/adapters/upper";
  ASSERT_EQ(build(to + adapter + " --lora_plugin auto --max_lora_rank 8"), 0) << error_;
  EXPECT_EQ(limits("engine").max_lora_rank, 8);
  EXPECT_NE(build(to + adapter + " --lora_plugin auto --max_lora_rank 4"), 0);
  EXPECT_THAT(error_, HasSubstr("rank 8 is not in [1, 4]"));
  EXPECT_NE(build(to + adapter), 0);
  EXPECT_THAT(error_, HasSubstr("needs --lora_plugin"));
  EXPECT_NE(build(to + " --lora_plugin auto --lora_dir " + top), 0);
  EXPECT_THAT(error_, HasSubstr("--lora_dir: "));
  EXPECT_NE(build(to + " --max_lora_rank 513"), 0);
  EXPECT_THAT(error_, HasSubstr("--max_lora_rank: 513 is not in [1, 512]"));
}

// Medusa heads go from their folder through the checkpoint into the engine, which then speculates.
TEST_F(ConversionTest, AnEngineTakesHeadsThatGuess) {
  struct Case {
    const char *flag, *folder, *mode, *proposer;
  };
  for (const Case& c :
       {Case{"medusa", "models/quickstart-medusa", "medusa", "medusa"},
        Case{"drafter", "tests/heads/quickstart-redrafter", "explicit_draft_tokens", "redrafter"},
        Case{"eagle", "models/quickstart-eagle", "eagle", "eagle"},
        Case{"eagle", "tests/heads/quickstart-eagle3", "eagle", "eagle"}}) {
    const std::string top = source_dir() + "/";
    ASSERT_EQ(convert(fmt::format("--model_dir {}models/quickstart --{}_model_dir {}{} "
                                  "--output_dir $D/ckpt",
                                  top, c.flag, top, c.folder)),
              0)
        << error_;
    ASSERT_EQ(build(fmt::format("--checkpoint_dir $D/ckpt --output_dir $D/engine --fast_build "
                                "--max_batch_size 4 --max_num_tokens 256 "
                                "--speculative_decoding_mode {}",
                                c.mode)),
              0)
        << error_;
    // The engine directory suffices.
    std::filesystem::rename(dir_ / "ckpt", dir_ / "gone");
    ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
    config.cache_dir = dir_ / "cache";
    for (const char* speculation : {"", "none"}) {
      config.speculation = speculation;
      const auto executor = Executor::create(dir_ / "engine", config);
      ASSERT_TRUE(executor.ok()) << executor.status();
      EXPECT_EQ((*executor)->stats().proposer, *speculation ? "" : c.proposer) << c.folder;
    }
    std::filesystem::rename(dir_ / "gone", dir_ / "ckpt");
  }
  EXPECT_NE(build("--checkpoint_dir $D/ckpt --output_dir $D/engine "
                  "--speculative_decoding_mode medusa"),
            0);
  EXPECT_THAT(error_, HasSubstr("--speculative_decoding_mode: 'medusa' needs such heads in"));
}

// trtllm-refit copies the head.
TEST_F(ConversionTest, ARefittedEngineKeepsItsHead) {
  const std::string top = source_dir() + "/";
  ASSERT_EQ(convert("--model_dir " + top + "models/quickstart --output_dir $D/ckpt " +
                    "--eagle_model_dir " + top + "models/quickstart-eagle"),
            0)
      << error_;
  const std::string flags =
      " --fast_build --max_batch_size 4 --max_num_tokens 256 --speculative_decoding_mode eagle";
  ASSERT_EQ(build("--checkpoint_dir $D/ckpt --output_dir $D/plan --strip_plan" + flags), 0)
      << error_;
  ASSERT_EQ(
      run(trtllm_refit_main,
          "trtllm-refit --checkpoint_dir $D/ckpt --engine_dir $D/plan --output_dir $D/engine"),
      0)
      << error_;
  std::filesystem::remove_all(dir_ / "ckpt");
  ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
  config.cache_dir = dir_ / "cache";
  const auto executor = Executor::create(dir_ / "engine", config);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->stats().proposer, "eagle");
}

// The head of another model, put there by hand.
TEST_F(ConversionTest, AnEngineOfAnotherHeadIsRefused) {
  const std::string top = source_dir() + "/";
  for (const char* folder : {"models/quickstart-eagle", "tests/heads/quickstart-eagle3"}) {
    ASSERT_EQ(convert("--model_dir " + top + "models/quickstart --output_dir $D/ckpt " +
                      "--eagle_model_dir " + top + folder),
              0)
        << error_;
    ASSERT_EQ(build("--checkpoint_dir $D/ckpt --output_dir $D/engine --fast_build "
                    "--max_batch_size 4 --speculative_decoding_mode eagle"),
              0)
        << error_;
    std::filesystem::copy_file(dir_ / "engine/rank0.engine",
                               dir_ / "engine/draft_model/rank0.engine",
                               std::filesystem::copy_options::overwrite_existing);
    ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
    config.cache_dir = dir_ / "cache";
    const auto executor = Executor::create(dir_ / "engine", config);
    EXPECT_THAT(std::string(executor.status().message()),
                HasSubstr("LlamaForCausalLM of 4096 tokens, 256 wide, does not go with"));
  }
}

TEST_F(ConversionTest, TheCheckpointAsksForACache) {
  const auto cache = [&](const std::string& model, const std::string& flags) {
    EXPECT_EQ(convert("--model_dir " + model + " --output_dir $D/ckpt" + flags), 0) << error_;
    EXPECT_EQ(build("--checkpoint_dir $D/ckpt --output_dir $D/engine"), 0) << error_;
    return convert::read_facts(dir_ / "engine")->kv_dtype;
  };
  EXPECT_EQ(cache("$M", ""), DType::kBF16);
  EXPECT_EQ(cache("$M", " --fp8_kv_cache"), DType::kF8E4M3);
  EXPECT_EQ(cache("$M", " --int8_kv_cache --use_weight_only"), DType::kI8);
  std::filesystem::rename(dir_ / "ckpt", dir_ / "source");
  EXPECT_EQ(cache("$D/source", ""), DType::kI8);
  EXPECT_EQ(convert("--model_dir $M --output_dir $D/b --int8_kv_cache --fp8_kv_cache"), 1);
  EXPECT_THAT(error_, HasSubstr("--fp8_kv_cache: cannot be combined with --int8_kv_cache"));
}

// Medusa heads with a model whose weights are rounded.
TEST_F(ConversionTest, QuantisingTakesMedusaHeadsAlong) {
  const std::string top = source_dir() + "/";
  ASSERT_EQ(
      run(quantize_main, "quantize.py --model_dir " + top + "models/quickstart --qformat int8_wo " +
                             "--output_dir $D/ckpt --num_medusa_heads 3 --medusa_model_dir " + top +
                             "models/quickstart-medusa"),
      0)
      << error_;
  ASSERT_EQ(build("--checkpoint_dir $D/ckpt --output_dir $D/engine --fast_build --max_batch_size 4 "
                  "--max_num_tokens 256 --speculative_decoding_mode medusa"),
            0)
      << error_;
  ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
  config.cache_dir = dir_ / "cache";
  const auto executor = Executor::create(dir_ / "engine", config);
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->stats().proposer, "medusa");
}

TEST_F(ConversionTest, HeadsThatAreNotThereAreRefused) {
  const std::string top = source_dir() + "/";
  const std::string model =
      "--output_dir $D/ckpt --save_config_only --model_dir " + top + "models/quickstart ";
  const std::string medusa = "--medusa_model_dir " + top + "models/quickstart-medusa ";
  const auto error = [&](const std::string& flags) {
    EXPECT_NE(convert(model + flags), 0);
    return error_;
  };
  EXPECT_THAT(error("--medusa_model_dir " + top + "models/quickstart-eagle"),
              HasSubstr("--medusa_model_dir: "));
  EXPECT_THAT(error(medusa + "--num_medusa_heads 4"),
              HasSubstr("--num_medusa_heads: 4, but config.json of"));
  EXPECT_THAT(error("--num_medusa_heads 3"), HasSubstr("needs --medusa_model_dir"));
  EXPECT_THAT(error(medusa + "--redrafter_num_beams 4"), HasSubstr("needs --drafter_model_dir"));
  EXPECT_THAT(error(medusa + "--eagle_model_dir " + top + "models/quickstart-eagle"),
              HasSubstr("a checkpoint has one folder of heads"));
  EXPECT_THAT(error(medusa + "--medusa_hidden_act relu"), HasSubstr("--medusa_hidden_act"));
  ASSERT_EQ(convert(model +
                    "--redrafter_num_beams 2 --redrafter_draft_len_per_beam 3 "
                    "--drafter_model_dir " +
                    top + "tests/heads/quickstart-redrafter"),
            0)
      << error_;
  const json::value heads = read_json_file(dir_ / "ckpt/draft_model/config.json").value();
  EXPECT_EQ(heads.at("redrafter_num_beams"), 2);
  EXPECT_EQ(heads.at("redrafter_draft_len_per_beam"), 3);
}

TEST_F(ConversionTest, PromptTuningBecomesAPromptTable) {
  const std::vector<float> numbers = {1, -2, 0.5f, 3, 4, -0.25f};
  io::StoredTensor table{
      "prompt_embeddings", "F32", DType::kF32, {2, 3}, std::as_bytes(std::span(numbers)), nullptr};
  const auto write = [&](const json::object& config) {
    ASSERT_TRUE(write_file_atomic(dir_ / "adapter_config.json", json::serialize(config)).ok());
    ASSERT_TRUE(write_file_atomic(dir_ / "adapter_model.safetensors",
                                  io::serialize_safetensors(std::span(&table, 1)))
                    .ok());
  };
  const auto made = [&](const std::string& more = " -t float32") {
    return run(hf_lora_convert_main, "hf_lora_convert.py -i $D -o $D/out" + more);
  };
  for (const char* kind : {"PROMPT_TUNING", "P_TUNING"}) {
    std::filesystem::remove_all(dir_ / "out");
    write({{"peft_type", kind}, {"num_virtual_tokens", 2}, {"num_transformer_submodules", 1}});
    ASSERT_EQ(made(), 0) << error_;
    const std::string file = read_file(dir_ / "out/model.prompt_table.npy").value();
    const auto array = io::parse_npy(std::as_bytes(std::span(file)));
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->type, "<f4");
    EXPECT_EQ(array->shape, (std::vector<int64_t>{1, 2, 3}));
    EXPECT_TRUE(std::ranges::equal(array->data, table.data));
  }
  ASSERT_EQ(made(""), 0) << error_;  // f16
  write({{"peft_type", "P_TUNING"}, {"num_virtual_tokens", 5}});
  EXPECT_NE(made(), 0);
  EXPECT_THAT(error_, HasSubstr("'prompt_embeddings' [2, 3] is not [5, width]"));
  write({{"peft_type", "P_TUNING"}, {"num_virtual_tokens", 2}, {"num_transformer_submodules", 2}});
  EXPECT_NE(made(), 0);
  EXPECT_THAT(error_, HasSubstr("num_transformer_submodules"));
  write({{"peft_type", "PREFIX_TUNING"}, {"num_virtual_tokens", 2}});
  EXPECT_NE(made(), 0);
  EXPECT_THAT(error_, HasSubstr("'peft_type': \"PREFIX_TUNING\" is not supported"));
  table.name = "other";
  write({{"peft_type", "P_TUNING"}, {"num_virtual_tokens", 2}});
  EXPECT_NE(made(), 0);
  EXPECT_THAT(error_, HasSubstr("has no tensor 'prompt_embeddings'"));
}

TEST_F(ConversionTest, DraftTokensComeWithRequests) {
  const std::string to = "--model_config $D/ckpt/config.json --output_dir $D/engine ";
  ASSERT_EQ(convert("--model_dir $M --save_config_only --output_dir $D/ckpt"), 0) << error_;
  ASSERT_EQ(build(to + "--speculative_decoding_mode draft_tokens_external --max_draft_len 5"), 0)
      << error_;
  EXPECT_EQ(limits("engine").max_lora_rank, 0);
  const json::value config = read_json_file(dir_ / "engine/config.json").value();
  EXPECT_EQ(config.at("build_config").at("max_draft_len"), 5);
  EXPECT_EQ(config.at("build_config").at("speculative_decoding_mode"), 2);
  ASSERT_EQ(build(to + "--speculative_decoding_mode lookahead_decoding --max_draft_len 15"), 0)
      << error_;
  const json::value ahead = read_json_file(dir_ / "engine/config.json").value();
  EXPECT_EQ(ahead.at("build_config").at("speculative_decoding_mode"), 8);
  EXPECT_NE(build(to + "--speculative_decoding_mode medusa"), 0);
  EXPECT_THAT(error_, HasSubstr("'medusa' needs such heads in "));
}

TEST_F(ConversionTest, AConfigWithoutWeights) {
  ASSERT_EQ(convert("--model_dir $M --save_config_only --output_dir $D/ckpt"), 0) << error_;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "ckpt/rank0.safetensors"));
  ASSERT_EQ(build("--checkpoint_dir $D/ckpt/config.json --output_dir $D/a"), 0) << error_;
  ASSERT_EQ(build("--model_config $D/ckpt/config.json --output_dir $D/b"), 0) << error_;
  EXPECT_TRUE(weights("a") == weights("b"));
}

TEST_F(ConversionTest, PruneBuildAndRefitGiveTheSameEngine) {
  ASSERT_EQ(convert("--model_dir $M --dtype bfloat16 --output_dir $D/whole"), 0) << error_;
  ASSERT_EQ(build("--checkpoint_dir $D/whole --output_dir $D/engine"), 0) << error_;
  const std::string prune = "trtllm-prune --checkpoint_dir $D/whole --out_dir $D/pruned";
  ASSERT_EQ(run(trtllm_prune_main, prune), 0) << error_;
  ASSERT_EQ(run(trtllm_prune_main, prune + " --prune_all"), 0) << error_;
  EXPECT_THAT(out_, HasSubstr(" 0 of "));
  ASSERT_EQ(build("--checkpoint_dir $D/pruned --output_dir $D/stripped"), 0) << error_;
  const std::string refit = "trtllm-refit --checkpoint_dir $D/whole --engine_dir ";
  ASSERT_EQ(run(trtllm_refit_main, refit + "$D/stripped --output_dir $D/refitted"), 0) << error_;
  EXPECT_TRUE(weights("engine") == weights("refitted"));
  EXPECT_EQ(run(trtllm_refit_main, refit + "$D/whole"), 1);
  EXPECT_THAT(error_, HasSubstr("has no rank0.engine"));
  EXPECT_EQ(run(trtllm_refit_main, "trtllm-refit --engine_dir $D/engine"), 1);
  EXPECT_THAT(error_, HasSubstr("--checkpoint_dir: is missing"));
}

TEST_F(ConversionTest, RoundedWeightsAreReadAgain) {
  const auto floats = [&] {
    EXPECT_EQ(convert("--model_dir $M --dtype bfloat16 --output_dir $D/floats"), 0) << error_;
    EXPECT_EQ(build("--checkpoint_dir $D/floats --output_dir $D/engine-floats"), 0) << error_;
    return weights("engine-floats").size();
  }();
  const std::pair<const char*, const char*> kAsked[] = {
      {"W8A16", "--use_weight_only"},
      {"W4A16", "--use_weight_only --weight_only_precision int4"},
      {"W4A16", "--use-weight-only-with-precision int4"},
      {"FP8_PER_CHANNEL_PER_TOKEN", "--use_fp8_rowwise"}};
  for (const auto& [name, flags] : kAsked) {
    const std::string to = std::string("$D/") + name;
    ASSERT_EQ(convert("--model_dir $M --output_dir " + to + " " + flags), 0) << error_;
    const json::value config = read_json_file(dir_ / name / "config.json").value();
    EXPECT_EQ(config.at("quantization").at("quant_algo"), name);
    ASSERT_EQ(build("--checkpoint_dir " + to + " --output_dir $D/engine"), 0) << error_;
    EXPECT_LT(weights("engine").size(), floats) << name;
  }
}

TEST_F(ConversionTest, IntegersInAGpusOrderAreRefused) {
  ASSERT_EQ(convert("--model_dir $M --use_weight_only --output_dir $D/x"), 0) << error_;
  json::value config = read_json_file(dir_ / "x/config.json").value();
  config.at("quantization").as_object().erase("weight_layout");
  ASSERT_TRUE(write_file_atomic(dir_ / "x/config.json", json::serialize(config)).ok());
  EXPECT_EQ(build("--checkpoint_dir $D/x --output_dir $D/engine"), 1);
  EXPECT_THAT(error_, HasSubstr("the integers of quant_algo 'W8A16' have an order that only"));
}

TEST_F(ConversionTest, WhatIsSaidOfTheSourceMustBeTrue) {
  EXPECT_EQ(convert("--model_dir $M --gpt_variant gpt2 --save_config_only --output_dir $D/v"), 0)
      << error_;
  EXPECT_EQ(convert("--model_dir $M --gpt_variant starcoder --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("--gpt_variant: starcoder is a GPTBigCodeForCausalLM, "));
  EXPECT_EQ(convert("--model_dir $M --gpt_variant jais --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("allowed: gpt2, starcoder, starcoder2, nemotron"));
  EXPECT_EQ(convert("--meta_ckpt_dir $M --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("has no params.json with consolidated.00.pth, or has a config"));
  EXPECT_EQ(convert("--meta_ckpt_dir $M --model_dir $M --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("--meta_ckpt_dir: cannot be combined with --model_dir"));
}

TEST_F(ConversionTest, SizesWithExpertsAreMixtral) {
  ASSERT_EQ(convert("--n_layer 2 --n_head 4 --n_embd 64 --inter_size 64 --vocab_size 100 "
                    "--moe_num_experts 4 --moe_top_k 2 --output_dir $D/sizes"),
            0)
      << error_;
  const json::value config = read_json_file(dir_ / "sizes/config.json").value();
  EXPECT_EQ(config.at("architecture"), "MixtralForCausalLM");
  EXPECT_EQ(config.at("moe").at("num_experts"), 4);
  EXPECT_EQ(config.at("moe").at("top_k"), 2);
  EXPECT_EQ(config.at("dtype"), "float16");
}

TEST_F(ConversionTest, WhatIsWrongIsNamed) {
  EXPECT_EQ(build("--chekpoint_dir $D"), 2);
  EXPECT_THAT(error_, HasSubstr("Did you mean '--checkpoint_dir'?"));
  EXPECT_EQ(build("--checkpoint_dir $M --max_beam_width 99"), 1);
  EXPECT_THAT(error_, HasSubstr("--max_beam_width: 99 is not in [1, 16]"));
  EXPECT_EQ(build("--output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("--checkpoint_dir: is missing"));
  EXPECT_EQ(convert("--model_dir $M --tp_size 2 --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("tp_size: 2 does not divide the 3 of weight"));
  EXPECT_EQ(convert("--model_dir $M --use_weight_only --weight_only_precision int4_gptq "
                    "--output_dir $D/x"),
            1);
  EXPECT_THAT(error_, HasSubstr("'int4_gptq' takes over int4 in groups of 128 weights"));
  EXPECT_EQ(convert("--model_dir $M --weight_only_precision int4 --output_dir $D/x"), 1);
  EXPECT_THAT(error_, HasSubstr("--weight_only_precision: int4 needs --use_weight_only"));
  EXPECT_EQ(convert("--model_dir $M --dtype float8 --output_dir $D/x"), 2);
  EXPECT_THAT(error_, HasSubstr("invalid choice: 'float8'"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "x"));
}

}  // namespace
}  // namespace nereid::cli
