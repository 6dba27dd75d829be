// Tokens of a step with drafts on the prompts of tests/quality/draft_prompts.json, beside what the
// makers of the models counted with PyTorch, where they did: greedy answers of up to 96 tokens, end
// token included.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "stopwatch.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::bench {
namespace {

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string prompts = source_dir() + "/tests/quality/draft_prompts.json";
  std::string column = "draft";
  double tolerance = 0.03;
  // Of models/quickstart-COLUMN unless they are given.
  ExecutorConfig config = {.max_draft_len = 4};
};

// A step gives the drafts that hold and a token of the model's own, with which the file counts it:
// where the answer ends with a draft, that step has none.
struct Count {
  int64_t tokens = 0, own = 0;
  double per_step() const { return static_cast<double>(tokens) / static_cast<double>(own); }
};

// Then as many drafts as the tree has.
bool is_tree(const ExecutorConfig& config) {
  return config.speculation == "lookahead" || !config.medusa_choices.empty() ||
         !config.eagle_choices.empty() || config.eagle_tree_top_k > 0;
}

StatusOr<Count> answer(Executor& executor, std::vector<TokenId> prompt) {
  constexpr int32_t kMostTokens = 96;
  constexpr int64_t kFewTokens = 4;  // an answer of fewer is not counted
  Request request;
  request.input_token_ids = std::move(prompt);
  request.max_tokens = kMostTokens;
  request.end_ids = executor.default_end_ids();
  request.streaming = true;
  ASSIGN_OR_RETURN(const RequestId id, executor.enqueue(std::move(request)));
  Count count;
  int64_t accepted = 0;
  for (bool done = false; !done;) {
    for (const Response& r : executor.await_responses(id, std::chrono::minutes(1))) {
      RETURN_IF_ERROR(r.status);
      const SequenceOutput& output = r.outputs.at(0);
      const int64_t tokens = static_cast<int64_t>(output.token_ids.size()) +
                             (output.finish_reason == FinishReason::kEndId);
      const int64_t held = r.metrics.num_accepted_drafts -
                           std::exchange(accepted, int64_t{r.metrics.num_accepted_drafts});
      count.tokens += tokens;
      count.own += tokens > held;
      done = r.is_final;
    }
  }
  return count.tokens < kFewTokens ? Count() : count;
}

Status measure(const Options& o) {
  ASSIGN_OR_RETURN(const json::value file, read_json_file(o.prompts));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(o.model));
  ASSIGN_OR_RETURN(const auto executor, Executor::create(o.model, o.config));
  Count all;
  double worst = 0;
  const auto print = [&](std::string_view kind, const Count& count, const json::value& expected) {
    if (!expected.as_object().contains(o.column)) {
      fmt::print("{:12} {:5.2f} tokens per step\n", kind, count.per_step());
      return;
    }
    const double ratio = count.per_step() / expected.at(o.column).to_number<double>();
    // A tree is expected to give more than the file's chain.
    worst = std::max(worst, is_tree(o.config) ? 1 - ratio : std::abs(ratio - 1));
    fmt::print("{:12} {:5.2f} tokens per step, {:5.2f} in the file, {:+.1f} %\n", kind,
               count.per_step(), expected.at(o.column).to_number<double>(), 100 * (ratio - 1));
  };
  for (const json::value& kind : file.at("kinds").as_array()) {
    Count count;
    for (const json::value& prompt : kind.at("prompts").as_array()) {
      ASSIGN_OR_RETURN(auto ids, tokenizer->encode(std::string_view(prompt.as_string()),
                                                   {.add_special_tokens = false}));
      ASSIGN_OR_RETURN(const Count one, answer(*executor, std::move(ids)));
      count.tokens += one.tokens;
      count.own += one.own;
    }
    all.tokens += count.tokens;
    all.own += count.own;
    print(kind.at("kind").as_string(), count, kind);
  }
  print("all", all, file.at("all"));
  if (worst <= o.tolerance) return ok();
  return internal_error("{:.1f} % beside the file; allowed are {:.1f} %", 100 * worst,
                        100 * o.tolerance);
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("tokens of a step with drafts, on greedy answers");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--draft-model", o.config.draft_model, "of the same tokens")
      ->default_str("models/quickstart-COLUMN");
  app.add_option("--speculation", o.config.speculation, "as of nereid serve")
      ->default_str("the kind of the column");
  app.add_option("--max-draft-len", o.config.max_draft_len, "drafts of a step")
      ->capture_default_str();
  app.add_option("--medusa-choices", o.config.medusa_choices, "as of nereid serve");
  app.add_option("--eagle-choices", o.config.eagle_choices, "as of nereid serve");
  app.add_option("--eagle-tree-top-k", o.config.eagle_tree_top_k, "as of nereid serve");
  app.add_option("--eagle-tree-depth", o.config.eagle_tree_depth, "as of nereid serve");
  app.add_option("--lookahead-window-size", o.config.lookahead.window_size, "as of nereid serve");
  app.add_option("--lookahead-ngram-size", o.config.lookahead.ngram_size, "as of nereid serve");
  app.add_option("--lookahead-verification-set-size", o.config.lookahead.verification_set_size,
                 "as of nereid serve");
  app.add_option("--ngram-pool-size", o.config.ngram_pool_size, "as of nereid serve");
  app.add_option("--prompts", o.prompts, "with what was counted before")->capture_default_str();
  app.add_option("--column", o.column, "of the file")
      ->check(CLI::IsMember({"draft", "medusa", "eagle", "ngram", "lookahead"}))
      ->capture_default_str();
  app.add_option("--tolerance", o.tolerance, "of each kind, as a share")->capture_default_str();
  bool no_reuse = false;
  app.add_flag("--no-kv-cache-reuse", no_reuse, "as of nereid serve");
  CLI11_PARSE(app, argc, argv);
  o.config.kv_cache.enable_block_reuse = !no_reuse;
  auto& config = o.config;
  if (config.speculation.empty())
    config.speculation = o.column == "draft" ? "draft_model" : o.column;
  if (config.draft_model.empty() && o.column != "ngram" && o.column != "lookahead")
    config.draft_model = nereid::source_dir() + "/models/quickstart-" + o.column;
  if (nereid::bench::is_tree(config) && !app.count("--max-draft-len")) config.max_draft_len = 0;
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "accepted_tokens: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
