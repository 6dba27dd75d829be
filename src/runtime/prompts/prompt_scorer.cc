#include "runtime/prompts/prompt_scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>

#include "base/contained.h"

namespace nereid::runtime {
namespace {

// Higher logits first, ties by id.
bool before(const TokenLogProb& a, const TokenLogProb& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.token < b.token;
}

// Fills `top` with the likeliest tokens and their logits.
void find_top(std::span<const float> logits, std::span<TokenLogProb> top) {
  if (top.empty()) return;
  size_t count = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const TokenLogProb here{static_cast<TokenId>(id), logits[id]};
    if (count == top.size() && !before(here, top.back())) continue;
    count = std::min(count + 1, top.size());
    size_t at = count - 1;
    for (; at > 0 && before(here, top[at - 1]); --at) top[at] = top[at - 1];
    top[at] = here;
  }
}

// Scores the token at `position` + 1 by the logits at `position`. False: logits not finite. A token
// behind the vocabulary, a picture's, has no logit: the lowest number.
bool score_token(std::span<const float> logits, TokenId token, size_t position,
                 PromptLogProbs& out) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  int32_t rank = 1;
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const bool is_known = static_cast<size_t>(token) < logits.size();
  const float own = is_known ? logits[static_cast<size_t>(token)] : kLowest;
  for (const float x : logits) {
    sum += std::exp(x - largest);
    rank += x > own;
  }
  const double log_sum = std::log(sum);
  if (!std::isfinite(log_sum)) return false;
  const auto log_prob = [&](float x) {
    return static_cast<float>((double{x} - largest) - log_sum);
  };
  out.log_probs[position] = is_known ? log_prob(own) : kLowest;
  out.ranks[position] = rank;
  const auto num_top = static_cast<size_t>(out.num_top);
  const auto top = std::span(out.top).subspan(position * num_top, num_top);
  find_top(logits, top);
  for (TokenLogProb& entry : top) entry.log_prob = log_prob(entry.log_prob);
  return true;
}

}  // namespace

PromptScorer::~PromptScorer() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PromptScorer::open(const sched::SequenceSpec& spec, const Submit&) {
  if (!spec.output.num_prompt_log_probs) return;
  const auto scores = std::make_shared<PromptScores>();
  scores->values.num_top = *spec.output.num_prompt_log_probs;
  open_.try_emplace(spec.id, scores);
}

Status PromptScorer::completed(const LandedRow& completed, EngineUpdate& update) {
  const sched::ScheduledRow& row = completed.row;
  const std::span<const float> logits = completed.result.logits;
  if (!row.all_logits || logits.empty()) return ok();
  const auto found = open_.find(row.sequence->id());
  if (found == open_.end()) return ok();
  PromptLogProbs& all = found->second->values;
  const auto tokens = row.sequence->tokens(row.beam);
  const size_t vocab = logits.size() / static_cast<size_t>(row.num_tokens);
  const auto num_prompt = static_cast<size_t>(row.sequence->num_prompt());
  const auto start = static_cast<size_t>(row.start), end = static_cast<size_t>(row.end());
  try {
    if (all.log_probs.size() != num_prompt - 1) {  // before the prompt's first job
      all.num_top = std::min(all.num_top, static_cast<int32_t>(vocab));
      all.log_probs.resize(num_prompt - 1);
      all.ranks.resize(num_prompt - 1);
      all.top.resize((num_prompt - 1) * static_cast<size_t>(all.num_top));
    }
    Job job{.scores = found->second, .position = start, .vocab = vocab};
    for (size_t position = start; position < std::min(end, num_prompt - 1); ++position)
      job.next.push_back(tokens[position + 1]);
    const auto known = logits.first(job.next.size() * vocab);
    job.logits.assign(known.begin(), known.end());
    if (end >= num_prompt) job.ends = row.sequence->id();
    push(std::move(job));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no memory for the log-probabilities of {} prompt tokens",
                              num_prompt);
  }
  if (end < num_prompt) return ok();
  update.prompt_scores = std::move(found->second);
  open_.erase(found);
  return ok();
}

void PromptScorer::push(Job job) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.size() < kMostJobs; });
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void PromptScorer::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    changed_.notify_all();
    if (!contained("log-probabilities of a prompt", [&] { score(job); }))
      job.scores->status = resource_exhausted("no memory for log-probabilities of the prompt");
    if (!job.ends) continue;
    job.scores->done.store(true, std::memory_order_release);
    on_done_(*job.ends);
  }
}

void PromptScorer::score(Job& job) {
  PromptScores& scores = *job.scores;
  const std::span<const float> logits = job.logits;
  for (size_t i = 0; i < job.next.size() && scores.status.ok(); ++i)
    if (!score_token(logits.subspan(i * job.vocab, job.vocab), job.next[i], job.position + i,
                     scores.values))
      scores.status = internal_error(
          "the logits of position {} of the prompt were not finite (NaN or infinity); only this "
          "request fails",
          job.position + i);
}

int32_t most_scored_tokens(int32_t vocab_size) {
  constexpr int32_t kLogits = 4 << 20;
  return std::max(kLogits / vocab_size, 1);
}

int64_t prompt_log_prob_bytes(int64_t num_prompt, int32_t num_top) {
  constexpr auto kOwn = static_cast<int64_t>(sizeof(float) + sizeof(int32_t));
  constexpr auto kTop = static_cast<int64_t>(sizeof(TokenLogProb));
  return std::max<int64_t>(num_prompt - 1, 0) * (kOwn + num_top * kTop);
}

}  // namespace nereid::runtime
