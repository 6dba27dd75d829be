// Command lines by the rules of Python's argparse.
#include "cli/flags/arg_table.h"

#include <gmock/gmock.h>

#include "cli/tools/build_flags.h"

namespace nereid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<std::string>;

Args parse(const Words& words) {
  auto args = Args::parse({"trtllm-build", kBuildFlags}, words);
  EXPECT_TRUE(args.ok()) << args.status();
  return args.ok() ? *std::move(args) : Args();
}
std::string refusal(const Words& words) {
  const auto args = Args::parse({"trtllm-build", kBuildFlags}, words);
  return args.ok() ? "accepted" : std::string(message(args.status()));
}

TEST(ArgTable, SpellingsOfOneThing) {
  EXPECT_EQ(parse({"--max_batch_size", "8"}).integer("--max_batch_size"), 8);
  EXPECT_EQ(parse({"--max_batch_size=8"}).integer("--max_batch_size"), 8);
  EXPECT_EQ(parse({"--max-batch-size=8"}).integer("--max_batch_size"), 8);
  EXPECT_EQ(parse({"--max_batch", "8"}).integer("--max_batch_size"), 8);  // unambiguous prefix
  EXPECT_EQ(parse({"--max_decoder_seq_len", "8"}).integer("--max_seq_len"), 8);
  EXPECT_EQ(parse({"--max_batch_size", "8", "--max_batch_size", "9"}).integer("--max_batch_size"),
            9);
  EXPECT_EQ(parse({}).integer("--max_batch_size"), 2048);
  EXPECT_FALSE(parse({}).given("--max_batch_size"));
}

TEST(ArgTable, Features) {
  EXPECT_TRUE(parse({"--use_fused_mlp"}).is_on("--use_fused_mlp"));
  EXPECT_TRUE(parse({"--use_fused_mlp=enable"}).is_on("--use_fused_mlp"));
  EXPECT_FALSE(parse({"--use_fused_mlp", "disable"}).is_on("--use_fused_mlp"));
  EXPECT_TRUE(parse({"--dry_run"}).is_on("--dry_run"));
  EXPECT_FALSE(parse({}).is_on("--dry_run"));
}

TEST(ArgTable, Refusals) {
  EXPECT_EQ(refusal({"--gemm_plugin", "fast"}),
            "argument --gemm_plugin: invalid choice: 'fast' (choose from 'auto', 'float16', "
            "'float32', 'bfloat16', 'int32', 'fp8', 'nvfp4', 'disable')");
  EXPECT_EQ(refusal({"--max_batch_size", "x"}),
            "argument --max_batch_size: invalid int value: 'x'");
  EXPECT_EQ(refusal({"--max_batch_size"}), "argument --max_batch_size: expected one argument");
  EXPECT_EQ(refusal({"--workers", "0"}), "argument --workers: 0 is not in [1, 1024]");
  EXPECT_EQ(refusal({"--workers", "1025"}), "argument --workers: 1025 is not in [1, 1024]");
  EXPECT_EQ(refusal({"--tokens_per_block", "48"}),
            "argument --tokens_per_block: invalid choice: '48' (choose from '16', '32', '64', "
            "'128')");
  EXPECT_EQ(refusal({"--max_batch_size", "--dry_run"}),
            "argument --max_batch_size: expected one argument");
  EXPECT_EQ(refusal({"--nonsense", "1"}), "unrecognized arguments: --nonsense");
  EXPECT_EQ(refusal({"stray"}), "unrecognized arguments: stray");
  EXPECT_THAT(refusal({"--max_b", "1"}), HasSubstr("ambiguous option: --max_b could match"));
  EXPECT_THAT(refusal({"--dry_run=1"}), HasSubstr("ignored explicit argument '1'"));
}

TEST(ArgTable, WhatComesLaterIsNamed) {
  EXPECT_EQ(refusal({"--streamingllm", "enable"}),
            "--streamingllm: 'enable' is not supported yet; allowed: disable");
  EXPECT_EQ(refusal({"--lora_ckpt_source", "nemo"}),
            "--lora_ckpt_source: 'nemo' is not supported yet; allowed: hf");
  EXPECT_EQ(refusal({"--lora_ckpt_source", "hf", "--streamingllm", "disable"}), "accepted");
}

TEST(ArgTable, WordsStandAnywhere) {
  constexpr ArgFlag kFlags[] = {{"--force,-f", ArgKind::kFlag, config::Use::kActed, "", "", ""}};
  const ArgTable table{"tool", kFlags, "FILE VALUES"};
  const auto words = [&](const Words& given) {
    const auto args = Args::parse(table, given);
    return args.ok() ? args->words() : Words{std::string(message(args.status()))};
  };
  EXPECT_THAT(words({"a", "-f", "b"}), ElementsAre("a", "b"));
  EXPECT_THAT(words({"--", "-f", "--force"}), ElementsAre("-f", "--force"));
  EXPECT_THAT(words({"a"}), ElementsAre("the following arguments are required: VALUES"));
  EXPECT_THAT(words({"a", "b", "c"}), ElementsAre("unrecognized arguments: c"));
  EXPECT_THAT(help_text(table), HasSubstr("usage: tool [-h] [--flag value ...] FILE VALUES\n"));
}

TEST(Wrapped, LongLinesGoOnBelowTheirLastColumn) {
  EXPECT_EQ(wrapped("short\n\nalso\n", 10), "short\n\nalso\n");
  EXPECT_EQ(wrapped("  -a   aa bb cc dd\n", 14), "  -a   aa bb\n       cc dd\n");
  EXPECT_EQ(wrapped("  -a,--long-name  aa bb cc", 20), "  -a,--long-name  aa\n  bb cc")
      << "no column in the left half";
  EXPECT_EQ(wrapped("          aa bb cc", 15), "          aa bb\n          cc");
  EXPECT_EQ(wrapped("  {aa,bb,cc,dd} x", 10), "  {aa,bb,\n  cc,dd} x");
  EXPECT_EQ(wrapped("  waytoolong word", 6), "  waytoolong\n  word") << "no place to cut";
  EXPECT_EQ(wrapped("waytoolong", 6), "waytoolong");
  EXPECT_EQ(wrapped("aa bb  \n", 5), "aa bb  \n");
}

TEST(ArgTable, WhatHasNoEffectIsListed) {
  EXPECT_THAT(parse({"--gpus_per_node", "4", "--model_cls_name", "Mine"}).ignored(),
              ElementsAre("--gpus_per_node", "--model_cls_name"));
  EXPECT_THAT(help_text({"trtllm-build", kBuildFlags}), HasSubstr("--max_batch_size N"));
}

}  // namespace
}  // namespace nereid::cli
