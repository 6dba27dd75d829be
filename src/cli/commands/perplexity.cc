// nereid perplexity: how well a model predicts a text, and its divergence from another model.
#include "cli/commands/perplexity.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/queue.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "convert/engine_dir.h"
#include "convert/inspect.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

using Logits = std::shared_ptr<const std::vector<float>>;

// The logits after each of `ids`, f32 [ids, vocab].
StatusOr<Logits> logits_after(Executor& model, std::span<const TokenId> ids) {
  Request request;
  request.input_token_ids.assign(ids.begin(), ids.end());
  request.max_tokens = 1;
  request.sampling.top_k = 1;
  request.output.return_context_logits = true;
  auto responses = std::make_shared<Queue<Response>>();
  RETURN_IF_ERROR(
      model.enqueue(std::move(request), [responses](Response r) { responses->push(std::move(r)); })
          .status());
  Logits logits;
  while (std::optional<Response> response = responses->take()) {
    RETURN_IF_ERROR(response->status);
    if (response->context_logits) logits = response->context_logits;
    if (response->is_final) break;
  }
  if (!logits || logits->size() != ids.size() * static_cast<size_t>(model.vocab_size()))
    return internal_error("a request for {} rows of logits got others", ids.size());
  return logits;
}

struct Row {
  std::span<const float> logits;
  float top = 0;       // the largest logit
  int64_t best = 0;    // index of the largest logit
  double log_sum = 0;  // log of the sum of exponentials

  explicit Row(std::span<const float> row) : logits(row) {
    best = std::ranges::max_element(row) - row.begin();
    top = row[static_cast<size_t>(best)];
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    log_sum = top + std::log(sum);
  }
  double log_prob(size_t token) const { return logits[token] - log_sum; }
};

void compare(const Row& row, const Row& other, TextScore& score) {
  double divergence = 0;
  for (size_t i = 0; i < row.logits.size(); ++i) {
    const double log_prob = other.log_prob(i);
    divergence += std::exp(static_cast<float>(log_prob)) * (log_prob - row.log_prob(i));
  }
  score.divergence += divergence;
  score.num_same_best += row.best == other.best;
}

// Scores the last `count` tokens of one window.
Status score_window(Executor& model, Executor* other, std::span<const TokenId> ids, size_t count,
                    TextScore& score) {
  const auto context = ids.first(ids.size() - 1);  // the logits after the last token are not needed
  ASSIGN_OR_RETURN(const Logits logits, logits_after(model, context));
  Logits others;
  if (other) {
    ASSIGN_OR_RETURN(others, logits_after(*other, context));
  }
  const auto vocab = static_cast<size_t>(model.vocab_size());
  const auto row_before = [&](const Logits& all, size_t i) {
    return Row({all->data() + (i - 1) * vocab, vocab});
  };
  for (size_t i = ids.size() - count; i < ids.size(); ++i) {
    const Row row = row_before(logits, i);
    score.negative_log_prob -= row.log_prob(static_cast<size_t>(ids[i]));
    if (others) compare(row, row_before(others, i), score);
  }
  score.num_scored += static_cast<int64_t>(count);
  return ok();
}

}  // namespace

double TextScore::perplexity() const {
  return std::exp(negative_log_prob / static_cast<double>(num_scored));
}

StatusOr<TextScore> score_text(Executor& model, Executor* other, std::span<const TokenId> ids,
                               const Windows& windows, const ScoreProgress& progress) {
  if (ids.size() < 2) return invalid_argument("the text has {} tokens; at least 2", ids.size());
  if (other && other->vocab_size() != model.vocab_size())
    return invalid_argument("the models have vocabularies of {} and of {} tokens",
                            model.vocab_size(), other->vocab_size());
  TextScore score;
  size_t reached = 0;
  for (size_t begin = 0; reached < ids.size(); begin += static_cast<size_t>(windows.stride)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(windows.window));
    const size_t count = std::min(end - reached, end - begin - 1);
    if (count > 0)
      RETURN_IF_ERROR(score_window(model, other, ids.subspan(begin, end - begin), count, score));
    reached = end;
    if (progress) progress(static_cast<int64_t>(reached), score);
  }
  return score;
}

namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::filesystem::path text, reference;
  Windows windows;  // 0: from the model, and from the window
};

Status check_windows(const PerplexityOptions& options, int32_t most) {
  const Windows& w = options.windows;
  if (w.window > most)
    return invalid_argument("--window {} exceeds the model's {} positions", w.window, most);
  if (w.stride > w.window)
    return invalid_argument("--stride {} exceeds the window of {}", w.stride, w.window);
  return ok();
}

StatusOr<std::vector<TokenId>> read_ids(const PerplexityOptions& options) {
  ASSIGN_OR_RETURN(const auto dir, convert::tokenizer_dir(options.model.model_dir));
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(dir));
  ASSIGN_OR_RETURN(const std::string text, read_file(options.text, text::Tokenizer::kMaxTextBytes));
  return tokenizer->encode(text);
}

StatusOr<std::unique_ptr<Executor>> open_reference(const PerplexityOptions& options) {
  if (options.reference.empty()) return nullptr;
  RETURN_IF_ERROR(convert::check_is_model(options.reference));
  ExecutorConfig config = options.model.executor;
  config.weights = config.head_weights = config.expert_weights = "auto";
  config.kv_cache.type = KvCacheType::kAuto;
  config.forced_kernels.clear();
  return Executor::create(options.reference, config);
}

Status perplexity(PerplexityOptions& options) {
  RETURN_IF_ERROR(options.model.finish());
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(options));
  options.model.executor.kv_cache.enable_block_reuse = false;
  ASSIGN_OR_RETURN(const auto model,
                   Executor::create(options.model.model_dir, options.model.executor));
  ASSIGN_OR_RETURN(const auto other, open_reference(options));
  int32_t most = model->max_sequence_length();
  if (other) most = std::min(most, other->max_sequence_length());
  Windows& windows = options.windows;
  if (windows.window == 0) windows.window = std::min(most, 2048);
  if (windows.stride == 0) windows.stride = windows.window;
  RETURN_IF_ERROR(check_windows(options, most));

  Time shown = now();
  const auto progress = [&](int64_t done, const TextScore& so_far) {
    constexpr auto kPeriod = std::chrono::seconds(2);
    if (now() - shown < kPeriod) return;
    shown = now();
    fmt::print(stderr, "{} of {} tokens, perplexity so far {:.4f}\n", done, ids.size(),
               so_far.perplexity());
  };
  ASSIGN_OR_RETURN(const TextScore score, score_text(*model, other.get(), ids, windows, progress));
  fmt::print("perplexity {:.5f} ({} of {} tokens scored, window {}, stride {})\n",
             score.perplexity(), score.num_scored, ids.size(), windows.window, windows.stride);
  if (!other) return ok();
  const auto count = static_cast<double>(score.num_scored);
  fmt::print("KL divergence from {} {:.6f} nats a token, same likeliest token {:.2f} %\n",
             options.reference.string(), score.divergence / count,
             100 * static_cast<double>(score.num_same_best) / count);
  return ok();
}

}  // namespace

void add_perplexity(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "perplexity",
      "measure how well a model predicts a text, by the method of transformers' guide");
  auto options = std::make_shared<PerplexityOptions>();
  options->model.log_level = "warn";
  options->model.declare(*command);
  command->add_option("-f,--file", options->text, "file with the text, UTF-8")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option("--window", options->windows.window,
                   "tokens of a window; default: the model's maximum, at most 2048. Memory: 4 "
                   "bytes * window * vocabulary")
      ->check(CLI::Range(2, 1 << 30));
  command
      ->add_option("--stride", options->windows.stride,
                   "tokens from one window's start to the next; a smaller stride gives tokens more "
                   "context and takes longer; default: --window")
      ->check(CLI::Range(1, 1 << 30));
  command
      ->add_option("--reference", options->reference,
                   "another model with the same vocabulary, run with its own types of weights and "
                   "KV cache: print the KL divergence of the model's next token from this one's")
      ->check(CLI::ExistingPath);
  command->callback([options, &exit_code] {
    if (const Status status = perplexity(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
