// The rows of the exactness suite: one request per feature.
#include "base/rng.h"
#include "nereid/request.h"
#include "runtime/testing/exactness.h"
#include "tensor/dtype.h"

namespace nereid::runtime::exactness {
namespace {

using R = Request&;
using A = const Aids&;

// High temperature: the model's distributions are sharp, and a row needs several likely tokens.
void sampled(R r) {
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 4.0f;
  r.sampling.seed = 11;
}

void with_log_probs(R r) {
  r.output.return_log_probs = true;
  r.output.num_top_log_probs = 3;
}

void pooled(R r, Pooling pooling) {
  r.output.pooling = pooling;
  r.max_tokens = 0;
}

void beams(R r, int32_t width) {
  r.sampling.beam_width = width;
  r.output.return_log_probs = true;
}

std::vector<TokenId> part(const std::vector<TokenId>& of, size_t first, size_t count) {
  return {of.begin() + static_cast<ptrdiff_t>(first),
          of.begin() + static_cast<ptrdiff_t>(first + count)};
}

std::string text_of(A a, size_t first, size_t count) {
  return a.tokenizer.decode(part(a.greedy, first, count), true);
}

void dense_bias(R r, A a) {
  with_log_probs(r);
  r.embedding_bias.resize(static_cast<size_t>(a.executor.vocab_size()));
  for (uint64_t i = 0; i < r.embedding_bias.size(); ++i)
    r.embedding_bias[i] = static_cast<float>(philox(5, i, 0)[0] >> 8) * 0x1p-21f - 4.0f;
}

void retention(R r, A) {
  KvCacheRetentionConfig& c = r.kv_cache_retention.emplace();
  c.token_ranges = {{.token_start = 0, .token_end = 16, .priority = 90},
                    {.token_start = 16, .priority = 5, .duration = std::chrono::milliseconds(3)}};
  c.decode_priority = 0;
}

// Some prompt tokens, across a block's end and at the prompt's end, are rows of a table.
void table(R r, A a, int32_t seed) {
  constexpr size_t kNumRows = 5;
  PromptTable& t = r.prompt_table.emplace();
  t.width = a.executor.embedding_width();
  const size_t size = kNumRows * static_cast<size_t>(t.width);
  for (uint64_t i = 0; i < size; ++i) {
    const auto fraction = static_cast<float>(philox(static_cast<uint64_t>(seed), i, 0)[0] >> 8);
    t.values.push_back(to_bf16(fraction * 0x1p-26f - 0.125f).bits);
  }
  std::vector<TokenId>& ids = r.input_token_ids;
  for (size_t i = 0; i < ids.size(); ++i)
    if ((i > 12 && i < 20) || i + 1 == ids.size())
      ids[i] = a.executor.vocab_size() + static_cast<TokenId>(i % kNumRows);
}

void guided(R r, A a, GuideType type, const char* guide) {
  with_log_probs(r);
  r.end_ids = a.executor.default_end_ids();
  r.guided_decoding = {type, guide};
}

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
        "size": {"type": "integer", "minimum": 3, "maximum": 400},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3}},
        "required": ["name", "size"], "additionalProperties": false})";
constexpr const char* kRegex = "(yes|no)( [a-z]{2,5}){1,3}\\.";

// Most features at once.
void everything(R r, A a) {
  sampled(r);
  with_log_probs(r);
  SamplingConfig& s = r.sampling;
  s.top_k = 200;
  s.top_p = 0.97f;
  s.top_p_decay = 0.99f;
  s.min_p = 0.001f;
  s.min_tokens = 10;
  s.repetition_penalty = 1.2f;
  s.presence_penalty = 0.3f;
  s.frequency_penalty = 0.2f;
  s.prompt_ignore_length = 9;
  s.no_repeat_ngram_size = 3;
  r.bad_words = {{a.greedy[2]}, {a.greedy[7], a.greedy[8]}};
  r.logit_bias = {{a.greedy[5], 1.5f}};
  r.end_ids = {3, 0};
  r.stop_words = {{a.greedy[15], a.greedy[16]}};
}

// Two possible tokens at each position, so that n-grams repeat about every other time.
void repeats(R r, A) {
  sampled(r);
  with_log_probs(r);
  r.logit_bias = {{17, 200.0f}, {18, 200.0f}};
}

// Sampling, stopping, output.
const Row kDrawing[] = {
    {"greedy", nullptr, 0, [](R, A) {}},
    {"greedy_whole_blocks", "greedy", 1, [](R, A) {}},
    {"repeats", "sampled", 0, repeats},
    {"sampled", "greedy", 0, [](R r, A) { sampled(r); }},
    {"seed", "sampled", 0, [](R r, A) { sampled(r), r.sampling.seed = 12345678901234u; }},
    {"temperature", "sampled", 0, [](R r, A) { sampled(r), r.sampling.temperature = 6.0f; }},
    {"top_k", "sampled", 0, [](R r, A) { sampled(r), r.sampling.top_k = 3; }},
    {"top_p", "sampled", 0, [](R r, A) { sampled(r), r.sampling.top_p = 0.6f; }},
    {"top_k_and_top_p", "sampled", 2,
     [](R r, A) {
       sampled(r);
       r.sampling.top_k = 40;
       r.sampling.top_p = 0.8f;
     }},
    {"end_id", "greedy", 0, [](R r, A a) { r.end_ids = {a.greedy[9]}; }},
    {"min_tokens", "end_id", 0,
     [](R r, A a) {
       r.end_ids = {a.greedy[9]};
       r.sampling.min_tokens = 15;
     }},
    {"stop_word", "greedy", 0,
     [](R r, A a) {
       r.stop_words = {{a.greedy[6], a.greedy[7]}};
     }},
    {"stop_string", "greedy", 0, [](R r, A a) { r.stop_strings = {text_of(a, 4, 2)}; }},
};

const Row kProcessing[] = {
    {"log_probs", "greedy", 0, [](R r, A) { with_log_probs(r); }},
    {"sampled_log_probs", "sampled", 0, [](R r, A) { sampled(r), with_log_probs(r); }},
    {"top_k_log_probs", "top_k", 0,
     [](R r, A) { sampled(r), with_log_probs(r), r.sampling.top_k = 3; }},
    {"raw_log_probs", "sampled_log_probs", 0,
     [](R r, A) {
       sampled(r), with_log_probs(r);
       r.output.log_probs_mode = LogProbsMode::kRaw;
     }},
    {"many_top_log_probs", "sampled_log_probs", 2,
     [](R r, A) { sampled(r), with_log_probs(r), r.output.num_top_log_probs = 32; }},
    {"top_p_decay", "top_p", 0,
     [](R r, A) { sampled(r), r.sampling.top_p = 0.6f, r.sampling.top_p_decay = 0.8f; }},
    {"top_p_min", "top_p_decay", 0,
     [](R r, A) {
       sampled(r), r.sampling.top_p = 0.6f, r.sampling.top_p_decay = 0.8f;
       r.sampling.top_p_min = 0.45f;
     }},
    {"top_p_reset", "top_p_decay", 0,
     [](R r, A a) {
       sampled(r), r.sampling.top_p = 0.6f, r.sampling.top_p_decay = 0.8f;
       r.sampling.top_p_reset_id = a.tokens_of("top_p_decay")[5];
     }},
    {"min_p", "sampled", 0, [](R r, A) { sampled(r), r.sampling.min_p = 0.3f; }},
    {"repetition", "log_probs", 0,
     [](R r, A) { with_log_probs(r), r.sampling.repetition_penalty = 1.8f; }},
    {"presence", "log_probs", 0,
     [](R r, A) { with_log_probs(r), r.sampling.presence_penalty = 1.5f; }},
    {"frequency", "log_probs", 0,
     [](R r, A) { with_log_probs(r), r.sampling.frequency_penalty = 0.9f; }},
    {"prompt_ignore", "frequency", 0,
     [](R r, A) {
       with_log_probs(r), r.sampling.frequency_penalty = 0.9f;
       r.sampling.prompt_ignore_length = 20;
     }},
    {"temperature_first", "sampled_log_probs", 0,
     [](R r, A) { sampled(r), with_log_probs(r), r.sampling.presence_penalty = 2.0f; }},
    {"temperature_last", "temperature_first", 0,
     [](R r, A) {
       sampled(r), with_log_probs(r), r.sampling.presence_penalty = 2.0f;
       r.sampling.order = SamplingOrder::kTemperatureLast;
     }},
    {"ngram_1", "log_probs", 0,
     [](R r, A) { with_log_probs(r), r.sampling.no_repeat_ngram_size = 1; }},
    {"ngram_2", "log_probs", 2,
     [](R r, A) { with_log_probs(r), r.sampling.no_repeat_ngram_size = 2; }},
    {"bad_word", "greedy", 0, [](R r, A a) { r.bad_words = {{a.greedy[5]}}; }},
    {"bad_words", "greedy", 0,
     [](R r, A a) {
       r.bad_words = {part(a.greedy, 4, 3), part(a.greedy, 0, 2)};
     }},
    {"suppressed_first", "greedy", 0,
     [](R r, A a) {
       r.suppressed_first_ids = {a.greedy[0], a.greedy[1]};
     }},
    {"timestamp_rules", "log_probs", 0,
     [](R r, A) {
       with_log_probs(r),
           r.timestamp_rules = {
               .first = 128, .no_timestamps = 7, .end_of_text = 120, .max_initial = 40};
     }},
    {"dense_bias", "log_probs", 0, dense_bias},
    {"logit_bias", "log_probs", 0,
     [](R r, A a) {
       with_log_probs(r), r.logit_bias = {{a.greedy[3], -100.0f}, {17, 2.0f}};
     }},
    {"generation_logits", "sampled", 0,
     [](R r, A) { sampled(r), r.output.return_generation_logits = true; }},
    {"everything", "sampled_log_probs", 0, everything},
};

const Row kSequences[] = {
    {"context_logits", "greedy", 0, [](R r, A) { r.output.return_context_logits = true; }},
    {"prompt_log_probs", "greedy", 0, [](R r, A) { r.output.num_prompt_log_probs = 3; }},
    {"prompt_log_probs_several", "several", 1,
     [](R r, A) {
       sampled(r), r.sampling.num_return_sequences = 3;
       r.output.num_prompt_log_probs = 0;
     }},
    {"prompt_log_probs_beams", "beams_2", 0,
     [](R r, A) {
       r.sampling.beam_width = 3, r.output.num_prompt_log_probs = 1;
       r.output.return_context_logits = true;
     }},
    {"embedding", "greedy", 0, [](R r, A) { pooled(r, Pooling::kLast); }, false},
    {"embedding_mean", "embedding", 0, [](R r, A) { pooled(r, Pooling::kMean); }, false},
    {"embedding_mean_of_blocks", "embedding_mean", 1, [](R r, A) { pooled(r, Pooling::kMean); },
     false},
    {"embedding_adapter", "embedding_mean", 0,
     [](R r, A) {
       pooled(r, Pooling::kMean);
       r.lora = LoraConfig{.task_id = 1};
     },
     false},
    {"retention", nullptr, 1, retention},
    {"salt", nullptr, 0, [](R r, A) { r.cache_salt = "one tenant's"; }},
    {"adapter", "log_probs", 0,
     [](R r, A) { with_log_probs(r), r.lora = LoraConfig{.task_id = 1}; }},
    {"other_adapter", "adapter", 0,
     [](R r, A) { with_log_probs(r), r.lora = LoraConfig{.task_id = 2}; }},
    {"adapter_of_embedding", "adapter", 0,
     [](R r, A) { with_log_probs(r), r.lora = LoraConfig{.task_id = 3}; }},
    {"adapter_several", "several", 0,
     [](R r, A) {
       sampled(r), with_log_probs(r);
       r.sampling.num_return_sequences = 3;
       r.lora = LoraConfig{.task_id = 1};
     }},
    {"adapter_context_logits", "context_logits", 0,
     [](R r, A) {
       r.output.return_context_logits = true;
       r.lora = LoraConfig{.task_id = 2};
     }},
    {"priority", nullptr, 0, [](R r, A) { r.priority = 0.9f; }},
    {"deadline", nullptr, 0, [](R r, A) { r.allotted_time = std::chrono::minutes(30); }},
    {"several", "sampled_log_probs", 0,
     [](R r, A) { sampled(r), with_log_probs(r), r.sampling.num_return_sequences = 3; }},
    {"several_whole_blocks", nullptr, 1,
     [](R r, A) { sampled(r), r.sampling.num_return_sequences = 2; }},
    {"best_of", "several", 0,
     [](R r, A) {
       sampled(r), with_log_probs(r);
       r.sampling.num_return_sequences = 2;
       r.sampling.best_of = 5;
     },
     false},
};

const Row kTables[] = {
    {"table", "log_probs", 0, [](R r, A a) { with_log_probs(r), table(r, a, 1); }},
    {"other_table", "table", 0, [](R r, A a) { with_log_probs(r), table(r, a, 2); }},
    {"table_extra_ids", "other_table", 2,
     [](R r, A a) {
       table(r, a, 1), everything(r, a);
       r.prompt_table->extra_ids.assign(r.input_token_ids.size(), 0);
       r.prompt_table->extra_ids[3] = r.prompt_table->extra_ids[14] = 7;
     }},
    {"table_several", nullptr, 1,
     [](R r, A a) { table(r, a, 1), sampled(r), r.sampling.num_return_sequences = 3; }},
    {"table_beams", "beams_2", 0, [](R r, A a) { beams(r, 2), table(r, a, 2); }},
};

const Row kGuided[] = {
    {"guided_schema", "log_probs", 0,
     [](R r, A a) { guided(r, a, GuideType::kJsonSchema, kSchema); }},
    {"guided_schema_sampled", "guided_schema", 0,
     [](R r, A a) { sampled(r), guided(r, a, GuideType::kJsonSchema, kSchema); }},
    {"guided_regex", "log_probs", 1, [](R r, A a) { guided(r, a, GuideType::kRegex, kRegex); }},
    {"guided_regex_sampled", "guided_regex", 1,
     [](R r, A a) { sampled(r), guided(r, a, GuideType::kRegex, kRegex); }},
    {"guided_behind_reasoning", "guided_regex_sampled", 1,
     [](R r, A a) {
       sampled(r), guided(r, a, GuideType::kRegex, kRegex);
       r.reasoning = ReasoningConfig{.close = ".", .begun = true, .max_tokens = 7};
     }},
    {"guided_several", "guided_schema_sampled", 2,
     [](R r, A a) {
       sampled(r), guided(r, a, GuideType::kRegex, kRegex);
       r.sampling.num_return_sequences = 3;
     }},
};

const Row kBeams[] = {
    {"beams_2", "log_probs", 0, [](R r, A) { beams(r, 2); }},
    {"beams_adapter", "beams_2", 0, [](R r, A) { beams(r, 2), r.lora = LoraConfig{.task_id = 1}; }},
    {"beams_4", "beams_2", 2, [](R r, A) { beams(r, 4); }},
    {"beams_16", "beams_4", 1, [](R r, A) { beams(r, 16); }},
    {"beams_end", "beams_4", 2,
     [](R r, A a) {
       beams(r, 4), r.end_ids = {a.greedy[6], a.greedy[11], 3};
     }},
    {"beams_length_penalty", "beams_end", 2,
     [](R r, A a) {
       beams(r, 4), r.end_ids = {a.greedy[6], a.greedy[11], 3};
       r.sampling.length_penalty = 2.0f;
       r.sampling.early_stopping = 0;
     }},
    {"beams_never_early", nullptr, 2,
     [](R r, A a) {
       beams(r, 3), r.end_ids = {a.greedy[6], 3};
       r.sampling.length_penalty = 1.0f;
       r.sampling.early_stopping = 2;
     }},
    {"beams_diverse", "beams_4", 2,
     [](R r, A) { beams(r, 4), r.sampling.beam_search_diversity_rate = 2.0f; }},
    {"beams_some_returned", "beams_4", 2,
     [](R r, A) { beams(r, 4), r.sampling.num_return_sequences = 2; }},
    {"beams_processed", "beams_4", 2,
     [](R r, A a) {
       beams(r, 4);
       r.sampling.repetition_penalty = 1.3f;
       r.sampling.no_repeat_ngram_size = 2;
       r.bad_words = {{a.greedy[5]}};
       r.sampling.min_tokens = 8;
       r.end_ids = {a.greedy[6], 3};
     }},
    {"beams_stop_word", "beams_2", 0,
     [](R r, A a) { beams(r, 2), r.stop_words = {part(a.greedy, 6, 2)}; }},
};

// Source of prompts: tokenised and cut to length.
constexpr const char* kText =
    "Machine learning is a branch of artificial intelligence in which computers learn patterns "
    "from data instead of following rules written by hand. A model is shown many examples, and "
    "its weights are adjusted until its answers are close to the wanted ones. A database stores "
    "data in tables, and a query language asks for the rows that are needed. The network carries "
    "packets between hosts; a router forwards each of them by its address.";

}  // namespace

std::vector<std::vector<TokenId>> prompts(const text::Tokenizer& tokenizer) {
  const auto tokens = tokenizer.encode(kText, {.add_special_tokens = false}).value();
  std::vector<std::vector<TokenId>> out;
  for (const size_t length : {37u, 48u, 71u}) out.push_back(part(tokens, 0, length));
  return out;
}

std::span<const Row> rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> out;
    for (const std::span<const Row> group : std::initializer_list<std::span<const Row>>{
             kDrawing, kProcessing, kSequences, kTables, kGuided, kBeams})
      out.insert(out.end(), group.begin(), group.end());
    return out;
  }();
  return all;
}

}  // namespace nereid::runtime::exactness
