// Every request field: refusals with their messages, and acceptance at the ends of the legal range.
#include "runtime/requests/request_check.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

namespace nereid::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::StartsWith;

constexpr int32_t kCheckedVocab = 100;

RequestBounds bounds() {
  RequestBounds b;
  b.limits = {.max_batch_size = 8,
              .max_num_tokens = 64,
              .max_queue_size = 200,
              .max_sequence_length = 256,
              .max_beam_width = 4,
              .groups = {{.num_blocks = 16}},
              .tokens_per_block = 16};
  b.vocab_size = kCheckedVocab;
  b.embedding_width = 4;
  b.has_tokenizer = true;
  b.max_logits_bytes = 40000;
  return b;
}

Request plain() {
  Request r;
  r.input_token_ids = {1, 2, 3};
  r.max_tokens = 10;
  return r;
}

struct Change {
  const char* message;  // prefix of the message; null: accepted
  std::function<void(Request&)> set;
};

void expect_each(const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    Request r = plain();
    change.set(r);
    const Status status = check_request(r, bounds());
    if (change.message) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << change.message;
      EXPECT_THAT(std::string(message(status)), StartsWith(change.message));
    } else {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

KvCacheRetentionConfig retention(std::vector<KvCacheRetentionConfig::TokenRange> ranges) {
  KvCacheRetentionConfig c;
  c.token_ranges = std::move(ranges);
  return c;
}

TEST(RequestCheck, Prompt) {
  expect_each({
      {nullptr, [](Request&) {}},
      {"prompt: no tokens", [](Request& r) { r.input_token_ids = {}; }},
      {"input_token_ids[1]: 100 is not in [0, 100)",
       [](Request& r) {
         r.input_token_ids = {1, kCheckedVocab};
       }},
      {"max_tokens: 0", [](Request& r) { r.max_tokens = 0; }},
      {"prompt: 256 tokens leave no room", [](Request& r) { r.input_token_ids.assign(256, 1); }},
  });
  RequestBounds whole = bounds();
  whole.limits.policy.enable_chunked_context = false;
  Request r = plain();
  r.input_token_ids.assign(64, 1);
  EXPECT_TRUE(check_request(r, whole).ok());
  r.input_token_ids.push_back(1);
  EXPECT_THAT(std::string(message(check_request(r, whole))),
              StartsWith("prompt: 65 tokens do not fit in one step of max_num_tokens 64"));
}

TEST(RequestCheck, Sequences) {
  expect_each({
      {"beam_width: 0 is not in [1, 4]", [](Request& r) { r.sampling.beam_width = 0; }},
      {"beam_width: 5 is not in [1, 4]", [](Request& r) { r.sampling.beam_width = 5; }},
      {"num_return_sequences: 0 is not in [1, 128]",
       [](Request& r) { r.sampling.num_return_sequences = 0; }},
      {nullptr, [](Request& r) { r.sampling.num_return_sequences = 128; }},
      {"num_return_sequences: 129", [](Request& r) { r.sampling.num_return_sequences = 129; }},
      {"num_return_sequences: 4 is not in [1, 3]",
       [](Request& r) {
         r.sampling.beam_width = 3;
         r.sampling.num_return_sequences = 4;
       }},
      {"best_of: 1 is not in [2, 128]",
       [](Request& r) {
         r.sampling.num_return_sequences = 2;
         r.sampling.best_of = 1;
       }},
      {"best_of: 2 is not allowed with beam_width 3",
       [](Request& r) {
         r.sampling.beam_width = 3;
         r.sampling.best_of = 2;
       }},
      {"best_of: 3 with streaming",
       [](Request& r) {
         r.streaming = true;
         r.sampling.best_of = 3;
       }},
      {nullptr,
       [](Request& r) {
         r.streaming = true;
         r.sampling.num_return_sequences = r.sampling.best_of = 3;
       }},
  });
}

TEST(RequestCheck, Logits) {
  expect_each({
      {"return_context_logits: 101 rows of 100 logits are 40400 bytes; at most 40000 are allowed "
       "(max_logits_bytes)",
       [](Request& r) {
         r.input_token_ids.assign(101, 1);
         r.output.return_context_logits = true;
       }},
      {nullptr,
       [](Request& r) {
         r.input_token_ids.assign(100, 1);
         r.output.return_context_logits = true;
       }},
      {"return_context_logits, return_generation_logits: 103 rows of 100 logits are 41200 bytes",
       [](Request& r) {
         r.max_tokens = 50;
         r.sampling.num_return_sequences = 2;
         r.output.return_context_logits = r.output.return_generation_logits = true;
       }},
      {"return_generation_logits: 253 rows",  // up to the longest sequence
       [](Request& r) {
         r.max_tokens = 1 << 30;
         r.output.return_generation_logits = true;
       }},
      {"return_generation_logits: not with beam_width 2",
       [](Request& r) {
         r.sampling.beam_width = 2;
         r.output.return_generation_logits = true;
       }},
      {"num_top_log_probs: 1 with beam_width 2",
       [](Request& r) {
         r.sampling.beam_width = 2;
         r.output.num_top_log_probs = 1;
       }},
      {"log_probs_mode: raw with beam_width 2",
       [](Request& r) {
         r.sampling.beam_width = 2;
         r.output.log_probs_mode = LogProbsMode::kRaw;
       }},
      {"stop_strings: not with beam_width 2",
       [](Request& r) {
         r.sampling.beam_width = 2;
         r.stop_strings = {"x"};
       }},
  });
}

TEST(RequestCheck, SequencesThatNeverFindRoom) {
  RequestBounds small = bounds();
  small.limits.max_queue_size = 3;
  Request r = plain();
  r.sampling.best_of = 4;
  EXPECT_THAT(std::string(message(check_request(r, small))),
              StartsWith("best_of: 4 sequences exceed the queue of 3"));
}

TEST(RequestCheck, Sampling) {
  const auto sampling = [](const char* text, auto set) {
    return Change{text, [set](Request& r) { set(r.sampling); }};
  };
  expect_each({
      sampling("top_k: -1", [](auto& s) { s.top_k = -1; }),
      sampling(nullptr, [](auto& s) { s.top_k = 1 << 30; }),
      sampling("top_p: 0", [](auto& s) { s.top_p = 0.0f; }),
      sampling("top_p: 1.5", [](auto& s) { s.top_p = 1.5f; }),
      sampling("top_p: nan", [](auto& s) { s.top_p = NAN; }),
      sampling(nullptr, [](auto& s) { s.top_p = 1.0f; }),
      sampling("top_p_min: 0", [](auto& s) { s.top_p_min = 0.0f; }),
      sampling("top_p_decay: 2", [](auto& s) { s.top_p_decay = 2.0f; }),
      sampling("top_p_reset_id: -1", [](auto& s) { s.top_p_reset_id = -1; }),
      sampling("min_p: -0.5", [](auto& s) { s.min_p = -0.5f; }),
      sampling("min_p: 1.5 is not in [0, 1]", [](auto& s) { s.min_p = 1.5f; }),
      sampling(nullptr, [](auto& s) { s.min_p = 1.0f; }),
      sampling("temperature: -1", [](auto& s) { s.temperature = -1.0f; }),
      sampling("temperature: inf", [](auto& s) { s.temperature = INFINITY; }),
      sampling(nullptr, [](auto& s) { s.temperature = 0.0f; }),
      sampling("min_tokens: -2", [](auto& s) { s.min_tokens = -2; }),
      sampling("repetition_penalty: 0", [](auto& s) { s.repetition_penalty = 0.0f; }),
      sampling("repetition_penalty: inf", [](auto& s) { s.repetition_penalty = INFINITY; }),
      sampling("presence_penalty: nan", [](auto& s) { s.presence_penalty = NAN; }),
      sampling(nullptr, [](auto& s) { s.presence_penalty = -2.0f; }),
      sampling("frequency_penalty: inf", [](auto& s) { s.frequency_penalty = INFINITY; }),
      sampling("prompt_ignore_length: -1", [](auto& s) { s.prompt_ignore_length = -1; }),
      sampling("no_repeat_ngram_size: -1", [](auto& s) { s.no_repeat_ngram_size = -1; }),
      sampling("order: 7", [](auto& s) { s.order = static_cast<SamplingOrder>(7); }),
      sampling("length_penalty: -1", [](auto& s) { s.length_penalty = -1.0f; }),
      sampling("early_stopping: -1", [](auto& s) { s.early_stopping = -1; }),
      sampling("beam_search_diversity_rate: nan",
               [](auto& s) { s.beam_search_diversity_rate = NAN; }),
  });
}

TEST(RequestCheck, OutputAndStops) {
  expect_each({
      {"num_top_log_probs: 33 is not in [0, 32]",
       [](Request& r) { r.output.num_top_log_probs = 33; }},
      {nullptr, [](Request& r) { r.output.num_top_log_probs = 32; }},
      {"log_probs_mode: 9",
       [](Request& r) { r.output.log_probs_mode = static_cast<LogProbsMode>(9); }},
      {"end_ids: 129 of them; at most 128", [](Request& r) { r.end_ids.assign(129, 1); }},
      {"end_ids[0]: -1", [](Request& r) { r.end_ids = {-1}; }},
      {"stop_words[1]: 0 tokens; allowed are 1 to 256",
       [](Request& r) {
         r.stop_words = {{1}, {}};
       }},
      {"stop_words[0][1]: 100 is not in",
       [](Request& r) {
         r.stop_words = {{1, kCheckedVocab}};
       }},
      {"bad_words: 1025 of them", [](Request& r) { r.bad_words.assign(1025, {1}); }},
      {"bad_words[0]: 257 tokens",
       [](Request& r) { r.bad_words = {std::vector<TokenId>(257, 1)}; }},
      {"stop_strings[0]: 0 bytes", [](Request& r) { r.stop_strings = {""}; }},
      {"stop_strings: 129 of them", [](Request& r) { r.stop_strings.assign(129, "x"); }},
  });
  RequestBounds textless = bounds();
  textless.has_tokenizer = false;
  Request r = plain();
  r.stop_strings = {"x"};
  EXPECT_THAT(std::string(message(check_request(r, textless))),
              StartsWith("stop_strings: the model directory has no usable tokenizer"));
}

TEST(RequestCheck, Biases) {
  expect_each({
      {"embedding_bias: 99 values", [](Request& r) { r.embedding_bias.assign(99, 0); }},
      {nullptr, [](Request& r) { r.embedding_bias.assign(kCheckedVocab, -INFINITY); }},
      {"embedding_bias[7]: nan",
       [](Request& r) {
         r.embedding_bias.assign(kCheckedVocab, 0);
         r.embedding_bias[7] = NAN;
       }},
      {"logit_bias[0]: token -1",
       [](Request& r) {
         r.logit_bias = {{-1, 0.5f}};
       }},
      {"logit_bias[1]: inf",
       [](Request& r) {
         r.logit_bias = {{1, 0.5f}, {2, INFINITY}};
       }},
      {"logit_bias: 1025 of them",
       [](Request& r) {
         r.logit_bias.assign(1025, {1, 0.5f});
       }},
  });
}

TEST(RequestCheck, Service) {
  expect_each({
      {"priority: 1.5 is not in [0, 1]", [](Request& r) { r.priority = 1.5f; }},
      {"priority: nan", [](Request& r) { r.priority = NAN; }},
      {"allotted_time: 0 ms", [](Request& r) { r.allotted_time = milliseconds(0); }},
      {nullptr, [](Request& r) { r.allotted_time = milliseconds::max(); }},
      {"cache_salt: 257 bytes; at most 256", [](Request& r) { r.cache_salt.assign(257, 'x'); }},
      {"kv_cache_retention.token_ranges[0].priority: 101 is not in [0, 100]",
       [](Request& r) { r.kv_cache_retention = retention({{.priority = 101}}); }},
      {"kv_cache_retention.token_ranges[0].token_start: -1",
       [](Request& r) { r.kv_cache_retention = retention({{.token_start = -1}}); }},
      {"kv_cache_retention.token_ranges[0].token_end: 5 is not above token_start 5",
       [](Request& r) { r.kv_cache_retention = retention({{.token_start = 5, .token_end = 5}}); }},
      {"kv_cache_retention.token_ranges[1].token_start: 3 is not allowed; at least 4",
       [](Request& r) {
         r.kv_cache_retention = retention({{.token_end = 4}, {.token_start = 3}});
       }},
      {"kv_cache_retention.token_ranges[1].token_start: 9",
       [](Request& r) {
         r.kv_cache_retention = retention({{}, {.token_start = 9}});
       }},
      {"kv_cache_retention.token_ranges[0].duration: 0 ms",
       [](Request& r) { r.kv_cache_retention = retention({{.duration = milliseconds(0)}}); }},
      {"kv_cache_retention.decode_priority: -1",
       [](Request& r) { r.kv_cache_retention.emplace().decode_priority = -1; }},
      {"kv_cache_retention.decode_duration: -1 ms",
       [](Request& r) { r.kv_cache_retention.emplace().decode_duration = milliseconds(-1); }},
  });
}

TEST(RequestCheck, DraftLogits) {
  const auto with = [](size_t drafts, size_t logits, std::optional<float> threshold = {}) {
    return [=](Request& r) {
      r.draft_token_ids.assign(drafts, 1);
      r.draft_logits.assign(logits, 0.5f);
      r.draft_acceptance_threshold = threshold;
      r.sampling.temperature = 0;  // required by these bounds
    };
  };
  expect_each({{nullptr, with(2, 200)},
               {nullptr, with(2, 200, 1.0f)},
               {"draft_logits: 199 of them; allowed are 200, 100 for each of the 2", with(2, 199)},
               {"draft_logits: 100 of them; allowed are 0, ", with(0, 100)},
               {"draft_acceptance_threshold: 0.5 needs draft_logits", with(2, 0, 0.5f)},
               {"draft_acceptance_threshold: 0 is not in (0, 1]", with(2, 200, 0.0f)},
               {"draft_acceptance_threshold: 1.5 is not in (0, 1]", with(2, 200, 1.5f)},
               {"draft_acceptance_threshold: nan", with(2, 200, NAN)},
               {"draft_logits: on this device only for greedy requests",
                [&](Request& r) {
                  with(2, 200)(r);
                  r.sampling.temperature = 1;
                  r.sampling.top_k = 5;
                }},
               {nullptr,
                [&](Request& r) {
                  with(2, 200)(r);
                  r.draft_logits[3] = -INFINITY;
                }},
               {"draft_logits: number 3 is inf; allowed are finite ones and -inf", [&](Request& r) {
                  with(2, 200)(r);
                  r.draft_logits[3] = INFINITY;
                }}});
}

TEST(RequestCheck, Lookahead) {
  RequestBounds own = bounds();
  own.lookahead = LookaheadConfig{4, 3, 4};
  const auto check = [](const RequestBounds& b, const LookaheadConfig& config) {
    Request r = plain();
    r.lookahead = config;
    return std::string(message(check_request(r, b)));
  };
  for (const LookaheadConfig& config :
       {LookaheadConfig{4, 3, 4}, LookaheadConfig{1, 2, 0}, LookaheadConfig{1, 1, 0}})
    EXPECT_EQ(check(own, config), "");
  EXPECT_THAT(check(own, {5, 3, 4}), StartsWith("lookahead.window_size: 5 is not in [1, 4]"));
  EXPECT_THAT(check(own, {4, 4, 4}), StartsWith("lookahead.ngram_size: 4 is not in [1, 3]"));
  EXPECT_THAT(check(own, {4, 3, 5}),
              StartsWith("lookahead.verification_set_size: 5 is not in [0, 4]"));
  EXPECT_THAT(check(own, {2, 1, 0}), StartsWith("lookahead.ngram_size: 1 is allowed with"));
  EXPECT_THAT(check(bounds(), {4, 3, 4}),
              StartsWith("lookahead: Cannot set the request lookahead decoding configuration"));
}

TEST(RequestCheck, PromptTables) {
  const auto table = [](size_t num_values, int32_t width, size_t num_extra_ids) {
    return PromptTable{std::vector<uint16_t>(num_values), width,
                       std::vector<uint64_t>(num_extra_ids)};
  };
  expect_each(
      {{nullptr, [&](Request& r) { r.prompt_table = table(4, 4, 0); }},
       {nullptr,
        [&](Request& r) {
          r.prompt_table = table(8, 4, 3);
          r.input_token_ids = {kCheckedVocab + 1, kCheckedVocab, 0};
        }},
       {"input_token_ids[1]: ",
        [&](Request& r) {
          r.prompt_table = table(4, 4, 0);
          r.input_token_ids = {kCheckedVocab, kCheckedVocab + 1};
        }},
       {"input_token_ids[0]: -1",
        [&](Request& r) {
          r.prompt_table = table(4, 4, 0);
          r.input_token_ids = {-1};
        }},
       {"draft_token_ids[0]: ",
        [&](Request& r) {
          r.prompt_table = table(4, 4, 0);
          r.draft_token_ids = {kCheckedVocab};
        }},
       {"prompt_table.width: 3 is not 4", [&](Request& r) { r.prompt_table = table(3, 3, 0); }},
       {"prompt_table.width: 0 is not 4", [&](Request& r) { r.prompt_table.emplace(); }},
       {"prompt_table.values: 0 of them", [&](Request& r) { r.prompt_table = table(0, 4, 0); }},
       {"prompt_table.values: 6 of them", [&](Request& r) { r.prompt_table = table(6, 4, 0); }},
       {"prompt_table.values: 268435464 bytes; at most 268435456",
        [&](Request& r) { r.prompt_table = table((1 << 27) + 4, 4, 0); }},
       {"prompt_table.extra_ids: 2 of them; none or 3",
        [&](Request& r) { r.prompt_table = table(4, 4, 2); }}});
}

}  // namespace
}  // namespace nereid::runtime
