// Test only: a model and draft heads on its hidden states, without an engine.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "runtime/model_instance.h"
#include "runtime/requests/sample_params.h"
#include "runtime/speculation/speculation.h"

namespace nereid::runtime {

using Tokens = std::vector<TokenId>;

inline const std::filesystem::path kTop = source_dir();
inline const std::filesystem::path kMedusaFolder = kTop / "models/quickstart-medusa";
inline const std::filesystem::path kEagleFolder = kTop / "models/quickstart-eagle";

inline ExecutorConfig heads_config(const std::filesystem::path& folder,
                                   const std::string& choices = "") {
  ExecutorConfig config{.num_threads = 1, .memory_bytes = 128 << 20};
  config.draft_model = folder;
  config.medusa_choices = choices;
  config.cache_dir = std::filesystem::path(::testing::TempDir()) / "draft_heads";
  return config;
}

inline Tokens tokens_of(const json::value& list) {
  Tokens out;
  for (const json::value& id : list.as_array()) out.push_back(id.to_number<TokenId>());
  return out;
}

class HeadsTest : public ::testing::Test {
 protected:
  explicit HeadsTest(const ExecutorConfig& config,
                     const std::filesystem::path& model = kTop / "models/quickstart")
      : model_(open_model(model, config).value()) {}

  static sched::Sequence sequence_of(Tokens tokens, RequestId id) {
    sched::SequenceSpec spec{.id = id, .prompt = std::move(tokens), .max_new_tokens = 10};
    spec.sampling.temperature = 0;
    return {std::move(spec), 1 << 20, 16, 1};
  }

  // Computes positions [start, end) of a text, the last `num_drafts` as drafts, and samples;
  // returns the sampled tokens.
  Tokens compute(const Tokens& text, RequestId id, int32_t start = 0, int32_t num_drafts = 0,
                 const std::vector<int32_t>& parents = {}) {
    sched::Sequence sequence = sequence_of(text, id);
    const auto new_tokens = std::span(text).subspan(static_cast<size_t>(start));
    const sched::ScheduledRow row{.sequence = &sequence,
                                  .start = start,
                                  .num_tokens = static_cast<int32_t>(new_tokens.size()),
                                  .samples = true,
                                  .num_drafts = num_drafts};
    exec::StepMessage step;
    add_draft_params(sequence, 0, model_.runner->vocab_size(), {}, step);
    std::vector<int32_t> blocks(16);
    std::iota(blocks.begin(), blocks.end(), 0);
    exec::PerGroup<std::span<const int32_t>> tables;
    tables[0] = blocks;
    exec::StepRow out{.start = start, .num_logits = row.num_tokens, .samples = 1};
    out.num_hidden = row.num_tokens;
    out.num_drafts = num_drafts;
    out.has_tree = parents.empty() ? 0 : 1;
    step.parents = parents;
    step.add(out, new_tokens, tables, 1, model_.runner->limits().block_tokens);
    std::vector<std::byte> message;
    exec::encode(step, message);
    exec::Ticket ticket = model_.runner->launch(message).value();
    const exec::StepResult results = model_.runner->wait(ticket).value();
    EXPECT_TRUE(results[0].status.ok()) << results[0].status;
    model_.proposer->completed(row, results[0]);
    Tokens drawn;
    for (const kernels::SampleResult& one : results[0].drawn) drawn.push_back(one.token);
    return drawn;
  }

  Tokens ask(const Tokens& known, RequestId id, int32_t most) {
    sched::Sequence sequence = sequence_of(known, id);
    DraftQuestion question{&sequence, most};
    model_.proposer->propose(std::span(&question, 1));
    EXPECT_FALSE(question.is_behind);
    return question.drafts;
  }

  ModelInstance model_;
};

}  // namespace nereid::runtime
