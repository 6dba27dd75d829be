// A request to an Executor. Field names, defaults and legal ranges follow the executor API that the
// Triton TensorRT-LLM backend is written against.
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

// Where the temperature divides the logits: before the penalties (TensorRT-LLM) or after penalties
// and bans (Hugging Face transformers, vLLM, OpenAI's API). The order matters when both are used.
enum class SamplingOrder : uint8_t { kTemperatureFirst, kTemperatureLast };

// Sampling of the next token from the logits. Unset options take the stated default. Beam search
// does not sample: top_k, top_p and its relatives, min_p and seed have no effect there.
struct SamplingConfig {
  int32_t beam_width = 1;  // 1 = sampling; valid: 1 to ExecutorConfig::max_beam_width
  // Sequences returned. Sampling: independent samples, the i-th with seed + i. Beams: the best
  // ones; at most beam_width, which is also the default.
  std::optional<int32_t> num_return_sequences;  // default 1; valid: 1 to 128
  // Sequences sampled, of which those with the highest cum_log_prob are returned; valid: >=
  // num_return_sequences, not streamed.
  std::optional<int32_t> best_of;

  std::optional<int32_t> top_k;      // 0 = off; 1 = greedy; valid: >= 0
  std::optional<float> top_p;        // unset = off; valid: (0, 1]. top_k and top_p off: greedy
  std::optional<float> top_p_min;    // floor of the decaying top_p; default 1e-6; valid: (0, 1]
  std::optional<float> top_p_decay;  // factor on top_p after each token; default 1; valid: (0, 1]
  std::optional<TokenId> top_p_reset_id;  // this token resets top_p; default none; valid: >= 0
  std::optional<float> min_p;             // drops p < min_p * p_max; default 0; valid: [0, 1]
  std::optional<float> temperature;       // default 1; 0 = greedy; valid: >= 0, finite
  std::optional<uint64_t> seed;           // default 0
  // End and stop ids are banned for this many tokens; valid: >= 0.
  std::optional<int32_t> min_tokens;

  std::optional<float> repetition_penalty;  // default 1; valid: > 0, finite
  std::optional<float> presence_penalty;    // default 0; valid: finite
  std::optional<float> frequency_penalty;   // default 0; valid: finite
  // Leading prompt tokens that presence and frequency do not count; default 0; valid: >= 0
  std::optional<int32_t> prompt_ignore_length;
  std::optional<int32_t> no_repeat_ngram_size;  // 0 = off (default); valid: >= 0
  SamplingOrder order = SamplingOrder::kTemperatureFirst;

  std::optional<float> length_penalty;  // beams: score = sum / length^this; default 0; valid: >= 0
  // Beam search stops: 1 (default): with beam_width hypotheses; 0: when no live beam can do better
  // at its present length; other: when none can at any length. valid: >= 0
  std::optional<int32_t> early_stopping;
  std::optional<float> beam_search_diversity_rate;  // default 0; valid: >= 0, finite
};

// The distribution of log-probabilities: kProcessed, the one sampled from before top-k and top-p
// (penalties, bans and temperature applied), or kRaw, the model's own.
enum class LogProbsMode : uint8_t { kProcessed, kRaw };

// The result made of the prompt's last hidden states, the input of the head: the state of the last
// token, the mean over all tokens, or the scores that a score head makes of the last token's.
enum class Pooling : uint8_t { kLast, kMean, kScore };

// A head of a decoder's cross attention.
struct AttentionHead {
  int32_t layer = 0, head = 0;
};

struct OutputConfig {
  bool exclude_input_from_output = true;
  bool return_log_probs = false;  // of each output token, and their sum
  // Likeliest tokens reported at each position; not for beams; valid: 0 to 32
  int32_t num_top_log_probs = 0;
  LogProbsMode log_probs_mode = LogProbsMode::kProcessed;
  bool return_context_logits = false;  // raw, f32 [prompt, vocab]
  // Raw log-probabilities of each prompt token but the first, and of this many likeliest tokens at
  // its position; unset: none; valid: 0 to 32. No prefix is taken from the cache for it.
  std::optional<int32_t> num_prompt_log_probs;
  // Heads whose scores of the prompt's tokens are Response::attention_scores; at most 512. No
  // prefix is taken from the cache for it.
  std::vector<AttentionHead> alignment_heads;
  bool return_generation_logits =
      false;  // raw, f32 [output, vocab] of each sequence; not for beams
  // Response::encoder_output of an encoder-decoder model. The input is encoded for this request
  // alone: no result is taken from the cache for it.
  bool return_encoder_output = false;
  // The result is Response::embedding, without tokens: max_tokens is 0, and no other output option
  // is set. For kMean no prefix is taken from the cache, since its hidden states are not kept.
  std::optional<Pooling> pooling;
};

// How long the prefix cache keeps the blocks of a request: higher priorities are evicted later.
// Blocks that no range covers have kDefaultRetention.
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

// Rows of embeddings in place of the model's own (prompt tuning, image features): input token vocab
// + i is row i. Penalties and bans ignore these tokens. A row that is not finite fails its request
// only. Prefixes are shared where rows and extra ids are equal.
struct PromptTable {
  std::vector<uint16_t> values;  // bits of bf16 numbers, [rows, width]; at most 256 MiB
  int32_t width = 0;             // Executor::embedding_width()
  // For each input token an id that separates prefixes, 0 where the token's id is
  // enough; empty: all are 0.
  std::vector<uint64_t> extra_ids;
};

// The LoRA adapter of a request. The first request of a task id has its weights, later ones
// only its id, as long as the host cache holds it (PeftCacheConfig). The same id with other
// weights is refused. A request with a folder needs no weights: the adapter is read when the
// cache does not hold the id.
struct LoraConfig {
  uint64_t task_id = 0;
  std::filesystem::path folder;  // as LoraDirectory::path, or of hf_lora_convert.py; empty = none
  std::filesystem::path root;    // as LoraDirectory::root
  // Row i of [rows, row_length]: matrix "in" [rank, k] of a module, matrix "out" [n, rank] with the
  // scale applied, and for DoRA the magnitudes [n] that multiply the sum of both products; zero
  // padding; rounded to bf16.
  std::vector<float> weights;
  int32_t columns = 3;  // columns of config, 3 or 4
  // [rows, columns]: TensorRT-LLM's module id, layer, rank, and the DoRA flag (0 or 1)
  std::vector<int32_t> config;
};

// The constraint on the output: kJson, a JSON object; kJsonSchema, a JSON value of a schema (draft
// 2020-12); kRegex, a text that the expression matches as a whole; kEbnfGrammar, a text of a
// grammar in GBNF or Lark; kStructuralTag, a text with constrained parts (the structural tags of
// xgrammar, in JSON).
enum class GuideType : uint8_t { kJson, kJsonSchema, kRegex, kEbnfGrammar, kStructuralTag };
struct GuidedDecoding {
  GuideType type = GuideType::kJson;
  std::string guide;  // schema, expression, grammar or tag, at most 256 KiB; empty for kJson
};

// The reasoning part of the output, between two markers before the answer: guided_decoding applies
// behind it. A marker has at most 64 bytes.
struct ReasoningConfig {
  std::string open;    // may begin the output; required unless `begun`
  std::string close;   // not empty; the answer follows it
  bool begun = false;  // the prompt ends inside the reasoning
  // After this many tokens `close` is forced, >= 0; unset: no limit.
  std::optional<int32_t> max_tokens;
};

// Lookahead decoding: the model computes draft n-grams itself, see ExecutorConfig::lookahead. A
// step may test at most 64 tokens: (ngram_size - 2) + (window_size - 1 + verification_set_size)
// * (ngram_size - 1).
struct LookaheadConfig {
  int32_t window_size = 4;            // >= 1; positions computed in parallel
  int32_t ngram_size = 3;             // >= 1; 1: no drafts, with a window of 1 and a set of 0
  int32_t verification_set_size = 4;  // >= 0; n-grams tested in a step
};

// Input of the encoder of an encoder-decoder model: token ids, or audio features
// (EncoderFacts::feature_width). Equal inputs are encoded once (KvCacheConfig::cross_fraction).
struct EncoderInput {
  std::vector<TokenId> token_ids;  // 1 to EncoderFacts::max_length, each in [0, vocab)
  // [frames, feature_width], finite; two frames give a position, so their number is even, at most
  // 2 * max_length.
  std::vector<float> features;
};

// Positions of the encoder's output that each position of an encoder-decoder model's decoder
// attends to in its cross attention; a position that attends to none gets zeros from it.
struct CrossAttentionMask {
  int32_t num_positions = 0;  // of the encoder's output: all that the request's input has
  // [rows, num_positions], 1: attended to, 0: not. Row i is of decoder position i, prompt included;
  // the last one is also of all later positions. 1 to Executor::max_sequence_length() rows.
  std::vector<uint8_t> attends;
};

// A picture of the prompt, or a video: frames of equal size. Equal ones are encoded once.
struct Picture {
  // Tokens of input_token_ids that stand for it, whose ids count only for penalties:
  // frames * height * width / PictureFacts::merge^2 of them. With PictureFacts::row_breaks one more
  // behind each row of width / merge, which is text. With PictureFacts::tiles_in_plane the tokens
  // of frame 0, then those of the rows of the plane of tiles that are not cut, with one more behind
  // each row, which is learned. With PictureFacts::max_across one, whose id may be that behind the
  // vocabulary: tokens from there to the next group of such tokens read the picture.
  int32_t first_token = 0, num_tokens = 0;
  int32_t frames = 1, height = 0, width = 0;  // in patches
  // PictureFacts::tiles_in_plane: frames 1 to tile_rows * tile_columns are tiles, row by row;
  // cut_rows and cut_columns of the plane's tokens are left out at each end, and what is left is
  // blended with PictureFacts::blended_tiles (blended_size() of src/base/blended_plane.h). With
  // these a picture may have no tiles: frame 0 with one more token behind it, or a video of several
  // frames, each blended to half of its rows and columns, rounded up. With
  // PictureFacts::max_across all frames are tiles, and nothing is cut. Else 0.
  int32_t tile_rows = 0, tile_columns = 0, cut_rows = 0, cut_columns = 0;
  // Bits of bf16 numbers, finite, [frames * height * width, PictureFacts::patch_width]: pixel
  // values as the model's processor gives them.
  std::vector<uint16_t> patches;
};

// Rules of time stamps of a transcript: ids from `first` on are time stamps, in ascending order of
// time. The first token is one of at most first + max_initial; they come in pairs, the end of a
// segment and the begin of the next, or before an end id; none is before an earlier one; a time
// stamp is drawn if together they are likelier than each other token. Source: the decoding of
// Whisper (Radford et al. 2022).
struct TimestampRules {
  TokenId first = 0;                     // in [0, vocab)
  std::optional<TokenId> no_timestamps;  // never drawn
  TokenId end_of_text = 0;               // ids below are text
  std::optional<int32_t> max_initial;    // >= 0; none: any time
};

struct Request {
  // Not empty, each in [0, vocab), or [0, vocab + rows) with a prompt_table. The decoder's prompt
  // of an encoder-decoder model begins with EncoderFacts::decoder_start_id.
  std::vector<TokenId> input_token_ids;
  std::optional<PromptTable> prompt_table;
  std::optional<EncoderInput> encoder_input;  // required by encoder-decoder models, else refused
  std::optional<CrossAttentionMask> cross_attention_mask;  // unset: every position attends to all
  std::vector<Picture> pictures;  // in the order of their tokens, without overlaps
  int32_t max_tokens = 0;         // new tokens, > 0; 0 with output.pooling
  bool streaming = false;         // one Response per step that produced tokens
  SamplingConfig sampling;
  OutputConfig output;
  std::vector<TokenId> end_ids;  // each of these ends the sequence; not part of the output
  // Token sequences that end the sequence; part of the output.
  std::vector<std::vector<TokenId>> stop_words;
  // Texts that end the sequence, matched on the detokenised output; not for beams.
  std::vector<std::string> stop_strings;
  std::vector<std::vector<TokenId>> bad_words;  // token sequences that are never completed
  // Tokens that are not the first of the output; not with sampling.min_tokens.
  std::vector<TokenId> suppressed_first_ids;
  std::optional<TimestampRules> timestamp_rules;  // not with guided_decoding
  // Draft tokens for the beginning of the output, such as a draft model's: tested in the
  // step that ends the prompt, as far as it has room. Without draft_logits they change no
  // output. Not for beams.
  std::vector<TokenId> draft_token_ids;
  // f32 [draft_token_ids, vocab]: the logits q that the draft tokens were sampled from, with the
  // request's sampling parameters and random numbers of another source. With p the generating
  // model's distribution after sampling parameters, a sampled draft x is accepted if p(x) >=
  // threshold * q(x), else the token is sampled from max(0, p - q). Without a threshold (a
  // random number each time) outputs have the distribution without drafts, but not the same
  // tokens. Empty: a draft is accepted if it equals the sample, as greedy ones always are. They
  // count in max_logits_bytes.
  std::vector<float> draft_logits;
  std::optional<float> draft_acceptance_threshold;  // in (0, 1]; needs draft_logits
  // Replaces the executor's values, each at most the executor's; needs speculation "lookahead".
  std::optional<LookaheadConfig> lookahead;
  std::optional<LoraConfig> lora;  // needs ExecutorConfig::enable_lora
  // Constrains the output: only tokens that continue an allowed text are sampled, and an
  // end id only where the text may end. Needs end_ids and a tokenizer; not for beams,
  // not with draft_token_ids.
  std::optional<GuidedDecoding> guided_decoding;
  // Needs a tokenizer; not for beams, not with draft_token_ids.
  std::optional<ReasoningConfig> reasoning;
  std::vector<float> embedding_bias;                  // empty, or [vocab]: added to the logits
  std::vector<std::pair<TokenId, float>> logit_bias;  // the same, sparse; ids in [0, vocab)
  // Streaming: every response has all tokens so far instead of the new ones. Always so for beams.
  bool return_all_generated_tokens = false;
  // Higher is scheduled first, equal ones in order of arrival; valid: [0, 1].
  float priority = 0.5f;
  // Time from enqueue(), waiting included, after which the request ends with kTimedOut. valid: > 0
  std::optional<std::chrono::milliseconds> allotted_time;
  std::optional<uint64_t> client_id;  // echoed in responses
  // Id of the client of the request, 0 = unknown; grammars are compiled by turns of tenants.
  uint64_t tenant = 0;
  std::optional<KvCacheRetentionConfig> kv_cache_retention;
  std::string cache_salt;  // prefixes are shared only among equal salts; at most 256 bytes
};

}  // namespace nereid
