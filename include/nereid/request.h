// What a client asks of an Executor. Field names, defaults and legal ranges follow the executor API
// that the Triton TensorRT-LLM backend is written against.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace nereid {

using TokenId = int32_t;
using RequestId = uint64_t;  // unique and increasing within one Executor; 0 is never used

// When the temperature divides the logits: before the penalties (TensorRT-LLM) or after penalties
// and bans (Hugging Face transformers, vLLM, OpenAI's API). They differ when both are used.
enum class SamplingOrder : uint8_t { kTemperatureFirst, kTemperatureLast };

// How the next token is drawn from the logits. Unset options take the stated default. Beam search
// draws nothing: there top_k, top_p and its relatives, min_p and seed have no effect.
struct SamplingConfig {
  int32_t beam_width = 1;  // 1 = sampling; valid: 1 to ExecutorConfig::max_beam_width
  // Sequences returned. Sampling: independent draws, the i-th with seed + i. Beams: the best ones;
  // at most beam_width, which is also the default.
  std::optional<int32_t> num_return_sequences;  // default 1; valid: 1 to 128
  std::optional<int32_t> best_of;  // sequences drawn, of which those with the highest cum_log_prob
                                   // are returned; valid: >= num_return_sequences, not streamed

  std::optional<int32_t> top_k;      // 0 = off; 1 = greedy; valid: >= 0
  std::optional<float> top_p;        // unset = off; valid: (0, 1]. top_k and top_p off: greedy
  std::optional<float> top_p_min;    // floor of the decaying top_p; default 1e-6; valid: (0, 1]
  std::optional<float> top_p_decay;  // factor on top_p after each token; default 1; valid: (0, 1]
  std::optional<TokenId> top_p_reset_id;  // this token sets top_p back; default none; valid: >= 0
  std::optional<float> min_p;             // drops p < min_p * p_max; default 0; valid: [0, 1]
  std::optional<float> temperature;       // default 1; 0 = greedy; valid: >= 0, finite
  std::optional<uint64_t> seed;           // default 0
  std::optional<int32_t> min_tokens;  // end and stop ids are banned before this many; valid: >= 0

  std::optional<float> repetition_penalty;  // default 1; valid: > 0, finite
  std::optional<float> presence_penalty;    // default 0; valid: finite
  std::optional<float> frequency_penalty;   // default 0; valid: finite
  // Leading prompt tokens that presence and frequency do not count; default 0; valid: >= 0
  std::optional<int32_t> prompt_ignore_length;
  std::optional<int32_t> no_repeat_ngram_size;  // 0 = off (default); valid: >= 0
  SamplingOrder order = SamplingOrder::kTemperatureFirst;

  std::optional<float> length_penalty;  // beams: score = sum / length^this; default 0; valid: >= 0
  // Beams. 1 (default): done with beam_width hypotheses; 0: when no live beam can do better at its
  // present length; other: when none can at any length. valid: >= 0
  std::optional<int32_t> early_stopping;
  std::optional<float> beam_search_diversity_rate;  // default 0; valid: >= 0, finite
};

// Which distribution log-probabilities come from: the one drawn from, before top-k and top-p cut it
// (penalties, bans and temperature applied), or the model's own.
enum class LogProbsMode : uint8_t { kProcessed, kRaw };

// What is made of the hidden states of a prompt, those that the model's head reads: the state of
// its last token, the mean over all of them, or the scores that the head of a model for scoring
// makes of the last token's.
enum class Pooling : uint8_t { kLast, kMean, kScore };

struct OutputConfig {
  bool exclude_input_from_output = true;
  bool return_log_probs = false;  // of each output token, and their sum
  // Likeliest tokens reported at each position; not for beams; valid: 0 to 32
  int32_t num_top_log_probs = 0;
  LogProbsMode log_probs_mode = LogProbsMode::kProcessed;
  bool return_context_logits = false;  // raw, f32 [prompt, vocab]
  // Raw log-probabilities of each prompt token but the first, and of this many likeliest tokens in
  // its place; unset: none; valid: 0 to 32. No prefix is taken from the cache.
  std::optional<int32_t> num_prompt_log_probs;
  bool return_generation_logits =
      false;  // raw, f32 [output, vocab] of each sequence; not for beams
  // The answer is Response::embedding and no token: max_tokens is 0, and nothing else of the output
  // is asked for. For kMean no prefix is taken from the cache, since its states are not kept.
  std::optional<Pooling> pooling;
};

// How long the prefix cache should keep the blocks of a request: higher priorities are evicted
// later. Blocks that no range covers have kDefaultRetention.
struct KvCacheRetentionConfig {
  static constexpr int32_t kDefaultRetention = 35;
  struct TokenRange {
    int32_t token_start = 0;               // first prompt token; a block belongs to the range that
    std::optional<int32_t> token_end;      // holds its first token; exclusive; unset = to the end
    int32_t priority = kDefaultRetention;  // valid: 0 to 100
    std::optional<std::chrono::milliseconds> duration;  // then kDefaultRetention; unset = for ever
  };
  std::vector<TokenRange> token_ranges;         // sorted, not overlapping
  int32_t decode_priority = kDefaultRetention;  // blocks of generated tokens; valid: 0 to 100
  std::optional<std::chrono::milliseconds> decode_duration;
};

// Rows that take the place of the model's own embeddings (prompt tuning, features of images): the
// input token vocab + i stands for row i. Penalties and bans do not know such tokens. A row that is
// not finite fails the request, and no other one. Prefixes are shared where rows and extra ids are
// equal.
struct PromptTable {
  std::vector<uint16_t> values;  // bits of bf16 numbers, [rows, width]; at most 256 MiB
  int32_t width = 0;             // Executor::embedding_width()
  // For each input token one that tells prefixes apart, 0 where its id is enough; empty: all are 0.
  std::vector<uint64_t> extra_ids;
};

// The adapter (LoRA) that is added to the model's matrices. The first request of a task id brings
// it along, later ones name it, as long as the host cache holds it (PeftCacheConfig). The same id
// with other weights is refused. A request that says in which folder the adapter is needs neither:
// it is read when the cache does not hold the id.
struct LoraConfig {
  uint64_t task_id = 0;
  std::filesystem::path folder;  // as LoraDirectory::path, or of hf_lora_convert.py; empty = none
  std::filesystem::path root;    // as LoraDirectory::root
  // Row i of [rows, row_length]: matrix "in" [rank, k] of a module, "out" [n, rank], scale
  // included, and of DoRA what the sum of both products is multiplied with, [n]; zeros behind;
  // rounded to bf16.
  std::vector<float> weights;
  int32_t columns = 3;  // of config, 3 or 4
  // [rows, columns]: TensorRT-LLM's module id, layer, rank, and whether it is DoRA (0 or 1)
  std::vector<int32_t> config;
};

// What the output has to be: a JSON object; a JSON value of a schema (draft 2020-12); a text that a
// regular expression matches as a whole; a text of a grammar in GBNF or Lark; a text that is held
// to schemas, grammars or expressions in parts (the structural tags of xgrammar, in JSON).
enum class GuideType : uint8_t { kJson, kJsonSchema, kRegex, kEbnfGrammar, kStructuralTag };
struct GuidedDecoding {
  GuideType type = GuideType::kJson;
  std::string guide;  // schema, expression, grammar or tag, at most 256 KiB; none for kJson
};

// A part of the output between two marks, in front of the answer: guided_decoding holds what
// follows it. Marks have at most 64 bytes.
struct ReasoningConfig {
  std::string open;                   // may begin the output; needed unless `begun`
  std::string close;                  // not empty; what follows it is the answer
  bool begun = false;                 // the prompt ends in the reasoning
  std::optional<int32_t> max_tokens;  // after so many `close` is written, >= 0; absent: any number
};

// Lookahead decoding: the model computes guesses itself, see ExecutorConfig::lookahead. All three
// together may make at most 64 guesses a step: (ngram_size - 2) + (window_size - 1 +
// verification_set_size) * (ngram_size - 1).
struct LookaheadConfig {
  int32_t window_size = 4;            // >= 1; positions that are guessed side by side
  int32_t ngram_size = 3;             // >= 1; 1: no guesses, with a window of 1 and a set of 0
  int32_t verification_set_size = 4;  // >= 0; n-grams that are tested in a step
};

struct Request {
  // Not empty, each in [0, vocab), or [0, vocab + rows) with a prompt_table.
  std::vector<TokenId> input_token_ids;
  std::optional<PromptTable> prompt_table;
  int32_t max_tokens = 0;  // new tokens, > 0; 0 with output.pooling
  bool streaming = false;  // one Response per step that produced tokens
  SamplingConfig sampling;
  OutputConfig output;
  std::vector<TokenId> end_ids;  // any of these ends the sequence; not part of the output
  std::vector<std::vector<TokenId>> stop_words;  // token sequences that end it; stay in the output
  // Text that ends it, matched on the detokenised output; not for beams.
  std::vector<std::string> stop_strings;
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that are never completed
  // Guesses of the first tokens of the output, a draft model's say: tested in the step that ends
  // the prompt, as far as it has room. Without draft_logits they change no output. Not for beams.
  std::vector<TokenId> draft_token_ids;
  // f32 [draft_token_ids, vocab]: the logits that the guesses were drawn from, with the request's
  // sampling parameters and other random numbers than its own. A sampled guess x is then taken if
  // p(x) >= threshold * q(x), p and q being what sampling makes of both logits; else the token is
  // drawn from what p has more than q. Without a threshold (a random number each time) the output
  // is distributed as without guesses, and other tokens than these are likely. Empty: a guess is
  // taken if it is drawn, as greedy ones always are. They count as logits that the request asks
  // for.
  std::vector<float> draft_logits;
  std::optional<float> draft_acceptance_threshold;  // in (0, 1]; needs draft_logits
  // In place of the executor's, none of the three above its; needs its speculation to be lookahead.
  std::optional<LookaheadConfig> lookahead;
  std::optional<LoraConfig> lora;  // needs ExecutorConfig::enable_lora
  // Only tokens that continue such a text are drawn, and an end id only where it may end. Needs
  // end_ids and a tokenizer; not for beams, not with draft_token_ids.
  std::optional<GuidedDecoding> guided_decoding;
  // Needs a tokenizer; not for beams, not with draft_token_ids.
  std::optional<ReasoningConfig> reasoning;
  std::vector<float> embedding_bias;                  // empty, or [vocab]: added to the logits
  std::vector<std::pair<TokenId, float>> logit_bias;  // the same, sparse; ids in [0, vocab)
  // Streaming: every response holds all tokens so far instead of the new ones. Always so for beams.
  bool return_all_generated_tokens = false;
  float priority = 0.5f;  // higher goes first, first come first served among equals; valid: [0, 1]
  // From enqueue(), waiting included; then the request ends with kTimedOut. valid: > 0
  std::optional<std::chrono::milliseconds> allotted_time;
  std::optional<uint64_t> client_id;  // echoed in responses
  // Whose request it is, by any number: tenants take turns where requests wait to be prepared.
  uint64_t tenant = 0;
  std::optional<KvCacheRetentionConfig> kv_cache_retention;
  std::string cache_salt;  // prefixes are shared only among equal salts; at most 256 bytes
};

}  // namespace nereid
