// Collects and compares the outcomes of the exactness suite.
#include "runtime/testing/exactness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <utility>

namespace nereid::runtime::exactness {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void join(Output& all, const SequenceOutput& part) {
  append(all.tokens, part.token_ids);
  append(all.log_probs, part.log_probs);
  append(all.top_log_probs, part.top_log_probs);
  append(all.generation_logits, part.generation_logits);
  if (part.cum_log_prob) all.cum_log_prob = part.cum_log_prob;
  all.reason = part.finish_reason;
}

std::string difference(const std::vector<float>& expected, const std::vector<float>& got,
                       const char* what) {
  if (expected.size() != got.size())
    return fmt::format("{} {}, expected {}", got.size(), what, expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!same_bits(expected[i], got[i]))
      return fmt::format("{}[{}] is {:.9g}, expected {:.9g}", what, i, got[i], expected[i]);
  return "";
}

std::string difference(const std::vector<std::vector<TokenLogProb>>& expected,
                       const std::vector<std::vector<TokenLogProb>>& got) {
  if (expected.size() != got.size())
    return fmt::format("{} lists of top log-probs, expected {}", got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (expected[i].size() != got[i].size())
      return fmt::format("top_log_probs[{}] has {} tokens, expected {}", i, got[i].size(),
                         expected[i].size());
    for (size_t k = 0; k < got[i].size(); ++k)
      if (got[i][k].token != expected[i][k].token ||
          !same_bits(got[i][k].log_prob, expected[i][k].log_prob))
        return fmt::format("top_log_probs[{}][{}] is {}: {:.9g}, expected {}: {:.9g}", i, k,
                           got[i][k].token, got[i][k].log_prob, expected[i][k].token,
                           expected[i][k].log_prob);
  }
  return "";
}

std::string difference(const Output& expected, const Output& got) {
  for (size_t i = 0; i < std::min(expected.tokens.size(), got.tokens.size()); ++i)
    if (expected.tokens[i] != got.tokens[i])
      return fmt::format("token {} is {}, expected {}", i, got.tokens[i], expected.tokens[i]);
  if (expected.tokens.size() != got.tokens.size())
    return fmt::format("{} tokens, expected {}", got.tokens.size(), expected.tokens.size());
  if (expected.reason != got.reason)
    return fmt::format("finish reason {}, expected {}", static_cast<int>(got.reason),
                       static_cast<int>(expected.reason));
  if (auto d = difference(expected.log_probs, got.log_probs, "log_probs"); !d.empty()) return d;
  if (auto d = difference(expected.top_log_probs, got.top_log_probs); !d.empty()) return d;
  const auto cum = [](const Output& o) {
    return o.cum_log_prob ? std::vector<float>{*o.cum_log_prob} : std::vector<float>{};
  };
  if (auto d = difference(cum(expected), cum(got), "cum_log_prob"); !d.empty()) return d;
  return difference(expected.generation_logits, got.generation_logits, "generation_logits");
}

void take_scores(const PromptLogProbs& scores, Outcome& outcome) {
  EXPECT_TRUE(outcome.prompt_log_probs.empty()) << "prompt log-probs twice";
  outcome.prompt_log_probs = scores.log_probs;
  const auto num_top = static_cast<size_t>(scores.num_top);
  for (size_t i = 0; i < scores.log_probs.size(); ++i) {
    const auto top = std::span(scores.top).subspan(i * num_top, num_top);
    outcome.prompt_top_log_probs.emplace_back(top.begin(), top.end());
  }
}

}  // namespace

std::string difference(const Outcome& expected, const Outcome& got) {
  if (expected.status != got.status)
    return fmt::format("status {}, expected {}", got.status.ToString(), expected.status.ToString());
  if (expected.sequences.size() != got.sequences.size())
    return fmt::format("{} sequences, expected {}", got.sequences.size(),
                       expected.sequences.size());
  for (size_t s = 0; s < got.sequences.size(); ++s) {
    if (expected.sequences[s].size() != got.sequences[s].size())
      return fmt::format("sequence {}: {} beams, expected {}", s, got.sequences[s].size(),
                         expected.sequences[s].size());
    for (size_t b = 0; b < got.sequences[s].size(); ++b)
      if (auto d = difference(expected.sequences[s][b], got.sequences[s][b]); !d.empty())
        return fmt::format("sequence {} beam {}: {}", s, b, d);
  }
  if (auto d = difference(expected.context_logits, got.context_logits, "context_logits");
      !d.empty())
    return d;
  if (auto d = difference(expected.prompt_log_probs, got.prompt_log_probs, "prompt_log_probs");
      !d.empty())
    return d;
  if (auto d = difference(expected.attention_scores, got.attention_scores, "attention_scores");
      !d.empty())
    return d;
  if (auto d = difference(expected.encoder_output, got.encoder_output, "encoder_output");
      !d.empty())
    return d;
  if (auto d = difference(expected.prompt_top_log_probs, got.prompt_top_log_probs); !d.empty())
    return fmt::format("prompt: {}", d);
  return difference(expected.embedding, got.embedding, "embedding");
}

RequestId Client::send(Executor& executor, const Request& request) {
  auto pending = std::make_shared<Pending>();
  pending->replaces = request.return_all_generated_tokens || request.sampling.beam_width > 1;
  const auto id =
      executor.enqueue(request, [this, pending](Response r) { take(*pending, std::move(r)); });
  EXPECT_TRUE(id.ok()) << id.status();
  if (!id.ok()) return 0;
  std::lock_guard lock(mutex_);
  pending_[*id] = std::move(pending);
  return *id;
}

Outcome Client::wait(RequestId id) {
  if (id == 0) return {.status = absl::InternalError("it was refused")};
  std::unique_lock lock(mutex_);
  const auto pending = pending_.at(id);
  EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] { return pending->done; }))
      << "request " << id << " has no final response";
  pending_.erase(id);
  return pending->outcome;
}

void Client::take(Pending& pending, Response response) {
  {
    std::lock_guard lock(mutex_);
    Outcome& outcome = pending.outcome;
    EXPECT_FALSE(pending.done) << "a response after the final one";
    ++outcome.num_responses;
    outcome.status.Update(response.status);
    if (response.context_logits) {
      EXPECT_TRUE(outcome.context_logits.empty()) << "context logits twice";
      outcome.context_logits = *response.context_logits;
    }
    if (response.prompt_log_probs) take_scores(*response.prompt_log_probs, outcome);
    if (response.attention_scores) {
      EXPECT_TRUE(outcome.attention_scores.empty()) << "attention scores twice";
      outcome.attention_scores = response.attention_scores->scores;
    }
    if (response.encoder_output) {
      EXPECT_TRUE(outcome.encoder_output.empty()) << "the encoder's output twice";
      outcome.encoder_output = response.encoder_output->values;
    }
    append(outcome.embedding, response.embedding);
    if (response.status.ok()) {
      const auto index = static_cast<size_t>(response.sequence_index);
      if (outcome.sequences.size() <= index) outcome.sequences.resize(index + 1);
      std::vector<Output>& outputs = outcome.sequences[index];
      if (pending.replaces) outputs.clear();
      outputs.resize(response.outputs.size());
      for (size_t b = 0; b < outputs.size(); ++b) {
        join(outputs[b], response.outputs[b]);
        EXPECT_EQ(response.outputs[b].num_output_tokens,
                  static_cast<int32_t>(outputs[b].tokens.size()));
      }
    }
    pending.done = response.is_final;
  }
  changed_.notify_all();
}

}  // namespace nereid::runtime::exactness
