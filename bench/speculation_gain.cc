// What drafts gain where a set share of them holds: with a fixed number in each step, and with the
// number chosen from measured costs, beside the formula of Leviathan et al. 2023. Off, fixed and
// chosen run by turns, each first at times, on the same requests, and must give the same tokens.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/testing/source_dir.h"
#include "runtime/engine_limits.h"
#include "runtime/model_instance.h"
#include "stopwatch.h"

namespace nereid::bench {
namespace {

constexpr int32_t kPromptTokens = 16;

struct Options {
  std::string model = source_dir() + "/models/quickstart";
  std::string draft_model = source_dir() + "/models/quickstart-draft";
  std::vector<int32_t> batches = {1, 32};
  std::vector<double> rates = {0.6, 0.8};
  std::vector<int32_t> fixed = {1, 2, 4, 8};
  int32_t most = 8;
  int32_t texts = 8;
  int32_t new_tokens = 128;
  int32_t repeats = 7;
  ExecutorConfig config;
};

using Texts = std::vector<std::vector<TokenId>>;  // prompts with their answers

// What the proposers of all executors share.
struct Setting {
  std::mutex mutex;
  Texts texts;
  double rate = 0;
};

// Whether a draft for this position of the text is right.
bool holds(const std::vector<TokenId>& text, size_t at, double rate) {
  const auto seed = static_cast<uint64_t>(text[0]) << 32 | static_cast<uint64_t>(text[1]);
  return philox(seed, at)[0] < rate * std::pow(2.0, 32);
}

// Of the positions of all answers, those for which drafts are right.
double share_that_holds(const Setting& setting) {
  size_t num_held = 0, num = 0;
  for (const auto& text : setting.texts)
    for (size_t at = kPromptTokens + 1; at < text.size(); ++at, ++num)
      num_held += holds(text, at, setting.rate);
  return static_cast<double>(num_held) / static_cast<double>(num);
}

// Takes as long as the draft model, and then says what will be drawn, each draft with the set
// chance. Which drafts hold depends on the text and the position alone.
class SetRateProposer : public runtime::Proposer {
 public:
  SetRateProposer(std::unique_ptr<runtime::Proposer> inner, Setting& setting)
      : inner_(std::move(inner)), setting_(setting) {}

  std::string_view name() const override { return inner_->name(); }
  void propose(std::span<runtime::DraftQuestion> questions) override {
    const Time begin = now();
    inner_->propose(questions);
    int32_t deepest = 0;
    for (const auto& question : questions) deepest = std::max(deepest, question.most);
    const std::lock_guard lock(setting_.mutex);
    seconds_per_draft_.push_back(seconds(now() - begin) / deepest);
    for (runtime::DraftQuestion& question : questions) replace(question);
  }
  double first_seconds() const override { return inner_->first_seconds(); }
  void forget(RequestId id) override { inner_->forget(id); }
  std::vector<exec::MemoryItem> memory() const override { return inner_->memory(); }

  // Since the last call; the median.
  double seconds_per_draft() {
    const std::lock_guard lock(setting_.mutex);
    return median(std::exchange(seconds_per_draft_, {}));
  }

 private:
  void replace(runtime::DraftQuestion& question) {
    const auto known = question.sequence->tokens();
    const auto text = std::ranges::find_if(setting_.texts, [&](const std::vector<TokenId>& t) {
      return std::ranges::equal(std::span(t).first(kPromptTokens), known.first(kPromptTokens));
    });
    if (text == setting_.texts.end()) return;
    for (size_t i = 0; i < question.drafts.size(); ++i) {
      const size_t at = known.size() + i;
      if (at >= text->size()) continue;
      const TokenId right = (*text)[at];
      question.drafts[i] = holds(*text, at, setting_.rate) ? right : (right == 0 ? 1 : 0);
    }
  }

  const std::unique_ptr<runtime::Proposer> inner_;
  Setting& setting_;
  std::vector<double> seconds_per_draft_;
};

// An executor, and what it measured.
struct Line {
  std::string name;
  std::unique_ptr<Executor> executor;
  SetRateProposer* proposer = nullptr;  // null: off
  std::vector<double> speeds, gains;    // tokens per second; over those of off in the same turn
  double per_step = 0;                  // drafts of a sequence, in its steps with drafts
};

StatusOr<Line> open(const Options& o, std::string name, std::string speculation, int32_t most,
                    Setting& setting) {
  ExecutorConfig config = o.config;
  config.speculation = std::move(speculation);
  config.max_draft_len = most;
  if (most > 0) config.draft_model = o.draft_model;
  ASSIGN_OR_RETURN(const convert::EngineLimits limits,
                   runtime::apply_engine_limits(o.model, config));
  ASSIGN_OR_RETURN(runtime::ModelInstance model, runtime::open_model(o.model, config));
  model.limits = limits;
  Line line{.name = std::move(name)};
  if (model.proposer) {
    auto proposer = std::make_unique<SetRateProposer>(std::move(model.proposer), setting);
    line.proposer = proposer.get();
    model.proposer = std::move(proposer);
  }
  line.executor = runtime::make_executor(std::move(model), config);
  return line;
}

// Adds greedy answers to `batch` prompts, asked at once, which are the same in each call.
Status answer(Executor& executor, int32_t batch, int32_t new_tokens, Texts& texts) {
  const size_t first = texts.size();
  std::vector<Request> requests;
  for (int32_t i = 0; i < batch; ++i) {
    Request& request = requests.emplace_back();
    request.input_token_ids =
        texts.emplace_back(random_tokens(executor, kPromptTokens, 77 + texts.size()));
    request.max_tokens = new_tokens;
  }
  std::vector<RequestId> ids;
  for (Request& request : requests) {
    ASSIGN_OR_RETURN(const RequestId id, executor.enqueue(std::move(request)));
    ids.push_back(id);
  }
  for (size_t i = 0; i < ids.size(); ++i)
    for (bool done = false; !done;)
      for (const Response& r : executor.await_responses(ids[i], std::chrono::minutes(10))) {
        RETURN_IF_ERROR(r.status);
        const std::vector<TokenId>& tokens = r.outputs.at(0).token_ids;
        auto& text = texts[first + i];
        text.insert(text.end(), tokens.end() - new_tokens, tokens.end());
        done = r.is_final;
      }
  return ok();
}

// Of `o.texts` prompts, or a batch of them.
StatusOr<Texts> answers(Executor& executor, int32_t batch, const Options& o) {
  Texts texts;
  do {
    RETURN_IF_ERROR(answer(executor, batch, o.new_tokens, texts));
  } while (texts.size() < static_cast<size_t>(o.texts));
  return texts;
}

// One run; tokens per second.
StatusOr<double> run(Line& line, int32_t batch, const Options& o, const Setting& setting) {
  const ExecutorStats before = line.executor->stats();
  const Time begin = now();
  ASSIGN_OR_RETURN(const Texts texts, answers(*line.executor, batch, o));
  const double elapsed = seconds(now() - begin);
  if (texts != setting.texts)
    return internal_error("{}: other tokens than without drafts", line.name);
  const ExecutorStats after = line.executor->stats();
  line.per_step = static_cast<double>(after.num_drafts - before.num_drafts) /
                  static_cast<double>(after.num_steps - before.num_steps) / batch;
  return static_cast<double>(texts.size()) * o.new_tokens / elapsed;
}

// Leviathan et al. 2023, theorem 3.8: a step of `count` drafts takes as long as one without.
double formula(double rate, int32_t count, double cost) {
  return (1 - std::pow(rate, count + 1)) / ((1 - rate) * (count * cost + 1));
}

void print(const Options& o, int32_t batch, const Setting& setting, std::vector<Line>& lines) {
  const double share = share_that_holds(setting);
  const double step = batch / median(lines[0].speeds);
  double cost = 0;  // of a draft, as a share of a step
  for (Line& line : lines)
    if (line.proposer && line.name != "auto") cost = line.proposer->seconds_per_draft() / step;
  double best = 0;
  for (int32_t count = 0; count <= o.most; ++count)
    best = std::max(best, formula(share, count, cost));
  fmt::print(
      "batch {}, {} of drafts hold ({:.3f} in these texts), a draft takes {:.3f} of a step: at "
      "best {:.2f} by the formula\n",
      batch, setting.rate, share, cost, best);
  const double fastest_off = std::ranges::max(lines[0].speeds);
  for (const Line& line : lines) {
    const double fastest = std::ranges::max(line.speeds);
    fmt::print(
        "  {:8} {:9.1f} tokens/s, {:.2f} of off; fastest {:9.1f}, {:.2f} of off's; {:.2f} drafts a "
        "step and sequence\n",
        line.name, median(line.speeds), median(line.gains), fastest, fastest / fastest_off,
        line.per_step);
  }
  std::fflush(stdout);
}

Status measure(const Options& o) {
  Setting setting;
  std::vector<Line> lines;
  ASSIGN_OR_RETURN(Line off, open(o, "off", "none", 0, setting));
  lines.push_back(std::move(off));
  for (const int32_t count : o.fixed) {
    ASSIGN_OR_RETURN(Line line,
                     open(o, fmt::format("fixed {}", count), "draft_model", count, setting));
    lines.push_back(std::move(line));
  }
  ASSIGN_OR_RETURN(Line adapted, open(o, "auto", "auto", o.most, setting));
  lines.push_back(std::move(adapted));
  for (const int32_t batch : o.batches) {
    setting.texts.clear();
    ASSIGN_OR_RETURN(Texts texts, answers(*lines[0].executor, batch, o));
    setting.texts = std::move(texts);
    for (const double rate : o.rates) {
      setting.rate = rate;
      for (Line& line : lines) line.speeds.clear(), line.gains.clear();
      for (int32_t repeat = 0; repeat <= o.repeats; ++repeat) {
        std::vector<double> speeds(lines.size());
        for (size_t k = 0; k < lines.size(); ++k) {
          const size_t i =
              (k + static_cast<size_t>(repeat)) % lines.size();  // each is first at times
          ASSIGN_OR_RETURN(speeds[i], run(lines[i], batch, o, setting));
          if (repeat == 0 && lines[i].proposer) lines[i].proposer->seconds_per_draft();
        }
        if (repeat == 0) continue;  // warms up
        for (size_t i = 0; i < lines.size(); ++i) {
          lines[i].speeds.push_back(speeds[i]);
          lines[i].gains.push_back(speeds[i] / speeds[0]);
        }
      }
      print(o, batch, setting, lines);
    }
  }
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  nereid::ExecutorConfig& config = o.config;
  config.kv_cache.enable_block_reuse = false;
  config.kv_cache.max_tokens = 16384;
  CLI::App app("what drafts gain where a set share of them holds, medians");
  app.add_option("--model", o.model, "model directory")->capture_default_str();
  app.add_option("--draft-model", o.draft_model, "of the same tokens")->capture_default_str();
  app.add_option("--device", config.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--threads", config.num_threads, "compute threads; 0 = one per core");
  app.add_option("--cache-dir", config.cache_dir, "where built engines are kept");
  app.add_option("--max-batch-size", config.max_batch_size)->capture_default_str();
  app.add_option("--batch", o.batches, "batch sizes")->delimiter(',')->capture_default_str();
  app.add_option("--rate", o.rates, "shares of drafts that hold")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--fixed", o.fixed, "numbers of drafts to compare with")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--max-draft-len", o.most, "drafts to choose from")->capture_default_str();
  app.add_option("--texts", o.texts, "requests of a turn, a batch of them at least")
      ->capture_default_str();
  app.add_option("--new-tokens", o.new_tokens, "of each request")->capture_default_str();
  app.add_option("--repeats", o.repeats, "turns for each figure")->capture_default_str();
  app.add_flag("--random-weights", config.random_weights,
               "a config.json without weights is enough");
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "speculation_gain: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
