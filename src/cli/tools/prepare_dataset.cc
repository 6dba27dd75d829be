#include "cli/tools/prepare_dataset.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "cli/flags/arg_table.h"
#include "cli/load/dataset.h"
#include "cli/tools/tools.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kDatasetFlags[] = {
    {"--tokenizer", kText, kActed, "", "",
     "model directory or tokenizer file, of which random ids are taken"},
    {"--stdout", kFlag, kActed, "", "", "write to standard output"},
    {"--output", kText, kActed, "", "preprocessed_dataset.json",
     "file that JSON lines are written to"},
    {"--random-seed", kInteger, kActed, "", "420", "seed: the same one gives the same requests"},
    {"--task-id", kInteger, kOnly, "", "-1", "adapters of requests"},
    {"--rand-task-id", kList, kOnly, "", "", "random adapters of requests"},
    {"--lora-dir", kText, kOnly, "", "", "adapters of requests"},
    {"--log-level", kText, kIgnored, "", "info", "nothing is logged"},
    {"--trust-remote-code", kFlag, kIgnored, "", "", "no code of a model is run"},
    {"--num-requests", kInteger, kActed, "", "", "number of requests"},
    {"--input-mean", kInteger, kActed, "", "", "token-norm-dist: mean of a prompt's tokens"},
    {"--input-stdev", kInteger, kActed, "", "",
     "token-norm-dist: standard deviation of a prompt's tokens"},
    {"--output-mean", kInteger, kActed, "", "", "token-norm-dist: mean of an output's tokens"},
    {"--output-stdev", kInteger, kActed, "", "",
     "token-norm-dist: standard deviation of an output's tokens"},
    {"--input-min", kInteger, kActed, "", "", "token-unif-dist: fewest tokens of a prompt"},
    {"--input-max", kInteger, kActed, "", "", "token-unif-dist: most tokens of a prompt"},
    {"--output-min", kInteger, kActed, "", "", "token-unif-dist: fewest tokens of an output"},
    {"--output-max", kInteger, kActed, "", "", "token-unif-dist: most tokens of an output"},
};
const ArgTable kDatasetTable{"prepare_dataset", kDatasetFlags, "DISTRIBUTION"};

constexpr int64_t kMaxLength = 1 << 20, kMaxRequests = 1 << 22;

// A required flag, in [low, high].
StatusOr<int64_t> needed(const Args& args, const char* flag, int64_t low, int64_t high) {
  if (!args.given(flag)) return invalid_argument("argument {}: is required", flag);
  const int64_t value = args.integer(flag);
  if (value < low || value > high)
    return invalid_argument("argument {}: {} is not in [{}, {}]", flag, value, low, high);
  return value;
}

StatusOr<std::vector<int64_t>> lengths_of(const Args& args, const std::string& what, int64_t count,
                                          uint64_t lane) {
  const auto seed = static_cast<uint64_t>(args.integer("--random-seed"));
  const std::string first = "--" + what;
  if (args.words()[0] == "token-norm-dist") {
    ASSIGN_OR_RETURN(const int64_t mean, needed(args, (first + "-mean").c_str(), 1, kMaxLength));
    ASSIGN_OR_RETURN(const int64_t stdev, needed(args, (first + "-stdev").c_str(), 0, kMaxLength));
    return normal_lengths(count, static_cast<double>(mean), static_cast<double>(stdev), seed, lane);
  }
  ASSIGN_OR_RETURN(const int64_t low, needed(args, (first + "-min").c_str(), 1, kMaxLength));
  ASSIGN_OR_RETURN(const int64_t high, needed(args, (first + "-max").c_str(), low, kMaxLength));
  return uniform_lengths(count, low, high, seed, lane);
}

// Refuses flags of the other distribution, which would have no effect.
Status check_distribution(const Args& args) {
  const std::string& name = args.words()[0];
  if (name == "real-dataset" || name == "dataset")
    return unsupported(
        "'{}' is not supported: data sets are not fetched; allowed: "
        "token-norm-dist, token-unif-dist",
        name);
  const bool is_normal = name == "token-norm-dist";
  if (!is_normal && name != "token-unif-dist")
    return invalid_argument(
        "invalid choice: '{}' (choose from 'token-norm-dist', "
        "'token-unif-dist')",
        name.substr(0, 80));
  constexpr std::pair<const char*, bool> kEnds[] = {
      {"-mean", true}, {"-stdev", true}, {"-min", false}, {"-max", false}};
  for (const char* what : {"--input", "--output"})
    for (const auto& [end, is_of_normal] : kEnds) {
      const std::string flag = fmt::format("{}{}", what, end);
      if (args.given(flag) && is_of_normal != is_normal)
        return invalid_argument("argument {}: not with {}", flag, name);
    }
  return ok();
}

}  // namespace

StatusOr<PreparedDataset> prepare_dataset(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const Args args, Args::parse(kDatasetTable, arguments));
  if (args.wants_help())
    return PreparedDataset{.lines = help_text(kDatasetTable), .wants_help = true};
  RETURN_IF_ERROR(check_distribution(args));
  if (!args.given("--tokenizer")) return invalid_argument("argument --tokenizer: is required");
  ASSIGN_OR_RETURN(const int64_t count, needed(args, "--num-requests", 1, kMaxRequests));
  ASSIGN_OR_RETURN(const auto inputs, lengths_of(args, "input", count, 1));
  ASSIGN_OR_RETURN(const auto outputs, lengths_of(args, "output", count, 2));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(args.text("--tokenizer")));
  PreparedDataset out;
  if (!args.given("--stdout")) out.output = args.text("--output");
  const auto seed = static_cast<uint64_t>(args.integer("--random-seed"));
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    const BenchRequest request = {
        .task_id = i,
        .input_ids = random_ids(inputs[at], tokenizer->vocab_size(), seed, at + 3),
        .output_tokens = outputs[at]};
    out.lines += json::serialize(dataset_line(request)) + "\n";
  }
  return out;
}

int run_prepare_dataset(const std::vector<std::string>& arguments) {
  const auto made = prepare_dataset(arguments);
  if (!made.ok()) {
    fmt::print(stderr, "prepare_dataset: error: {}\n", message(made.status()));
    return absl::IsInvalidArgument(made.status()) ? 2 : 1;
  }
  if (made->wants_help || made->output.empty()) {
    const bool is_written =
        std::fwrite(made->lines.data(), 1, made->lines.size(), stdout) == made->lines.size();
    return is_written && std::fflush(stdout) == 0 ? 0 : 1;
  }
  if (const Status status = write_file_atomic(made->output, made->lines); !status.ok()) {
    fmt::print(stderr, "prepare_dataset: error: {}\n", message(status));
    return 1;
  }
  return 0;
}

int prepare_dataset_main(int argc, char** argv) {
  return run_prepare_dataset({argv + std::min(argc, 1), argv + argc});
}

}  // namespace nereid::cli
