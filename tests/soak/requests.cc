// Each feature is one row: a name, how often it is used, and how it shapes the request.
#include "requests.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace nereid::soak {
namespace {

using std::chrono::milliseconds;

// Draws on one generator, in the order in which they are asked for.
struct Dice {
  std::mt19937_64& rng;
  const Limits& limits;

  int64_t whole(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  }
  int32_t count(int32_t low, int32_t high) { return static_cast<int32_t>(whole(low, high)); }
  float real(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(rng);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(rng); }
  TokenId token() { return count(0, limits.vocab_size - 1); }
  std::vector<TokenId> word() {
    std::vector<TokenId> out(static_cast<size_t>(whole(1, 3)));
    for (TokenId& t : out) t = token();
    return out;
  }
};

struct Feature {
  const char* name;
  double chance;
  void (*apply)(Request&, Dice&);
};

void set_retention(Request& r, Dice& d) {
  KvCacheRetentionConfig& c = r.kv_cache_retention.emplace();
  KvCacheRetentionConfig::TokenRange first{.token_start = 0, .priority = d.count(0, 100)};
  first.token_end = d.count(1, 64);
  if (d.chance(0.5)) first.duration = milliseconds(d.whole(1, 2000));
  KvCacheRetentionConfig::TokenRange rest{.token_start = *first.token_end,
                                          .priority = d.count(0, 100)};
  c.token_ranges = {first, rest};
  c.decode_priority = d.count(0, 100);
  if (d.chance(0.5)) c.decode_duration = milliseconds(d.whole(1, 2000));
}

void set_dense_bias(Request& r, Dice& d) {
  r.embedding_bias.resize(static_cast<size_t>(d.limits.vocab_size));
  for (float& b : r.embedding_bias) b = d.real(-2, 2);
}

// More than most: the sampler keeps the largest lists that a slot has had.
void set_long_lists(Request& r, Dice& d) {
  set_dense_bias(r, d);
  r.bad_words = {d.word(), d.word(), d.word()};
  r.logit_bias = {{d.token(), 4.0f}, {d.token(), -100.0f}};
}

void set_beams(Request& r, Dice& d) {
  SamplingConfig& s = r.sampling;
  constexpr int32_t kWidths[] = {2, 2, 3, 4, 4, 8, 16};
  r.stop_strings.clear();
  s.beam_width = std::min(kWidths[d.whole(0, 6)], d.limits.max_beam_width);
  if (d.chance(0.3)) s.num_return_sequences = d.count(1, s.beam_width);
  if (d.chance(0.5)) s.length_penalty = d.real(0, 2);
  if (d.chance(0.5)) s.early_stopping = d.count(0, 2);
  if (d.chance(0.3)) s.beam_search_diversity_rate = d.real(0, 1);
}

// Later rows see what earlier ones did; the exclusions of the public header are kept here.
const Feature kFeatures[] = {
    {"stream", 0.5, [](Request& r, Dice&) { r.streaming = true; }},
    {"stream_whole", 0.1, [](Request& r, Dice&) { r.return_all_generated_tokens = true; }},
    {"echo", 0.05, [](Request& r, Dice&) { r.output.exclude_input_from_output = false; }},
    {"temperature", 0.6, [](Request& r, Dice& d) { r.sampling.temperature = d.real(0, 5); }},
    {"top_k", 0.4, [](Request& r, Dice& d) { r.sampling.top_k = d.count(0, 200); }},
    {"top_p", 0.5, [](Request& r, Dice& d) { r.sampling.top_p = d.real(0.05f, 1.0f); }},
    {"top_p_decay", 0.1,
     [](Request& r, Dice& d) {
       r.sampling.top_p = d.real(0.5f, 1.0f);
       r.sampling.top_p_decay = d.real(0.5f, 1.0f);
       if (d.chance(0.5)) r.sampling.top_p_min = d.real(0.01f, 0.5f);
       if (d.chance(0.5)) r.sampling.top_p_reset_id = d.token();
     }},
    {"min_p", 0.1, [](Request& r, Dice& d) { r.sampling.min_p = d.real(0, 1); }},
    {"seed", 0.5,
     [](Request& r, Dice& d) { r.sampling.seed = static_cast<uint64_t>(d.whole(0, 1 << 30)); }},
    {"min_tokens", 0.2, [](Request& r, Dice& d) { r.sampling.min_tokens = d.count(0, 20); }},
    {"repetition", 0.1,
     [](Request& r, Dice& d) { r.sampling.repetition_penalty = d.real(0.5f, 2.0f); }},
    {"presence", 0.1, [](Request& r, Dice& d) { r.sampling.presence_penalty = d.real(-2, 2); }},
    {"frequency", 0.1, [](Request& r, Dice& d) { r.sampling.frequency_penalty = d.real(-2, 2); }},
    {"prompt_ignore", 0.05,
     [](Request& r, Dice& d) { r.sampling.prompt_ignore_length = d.count(0, 100); }},
    {"ngram", 0.1, [](Request& r, Dice& d) { r.sampling.no_repeat_ngram_size = d.count(1, 5); }},
    {"order", 0.2, [](Request& r, Dice&) { r.sampling.order = SamplingOrder::kTemperatureLast; }},
    {"end_ids", 0.7,
     [](Request& r, Dice& d) {
       r.end_ids = {3, 0};
       if (d.chance(0.2)) r.end_ids.push_back(d.token());
     }},
    {"stop_words", 0.2,
     [](Request& r, Dice& d) {
       r.stop_words = {d.word(), d.word()};
     }},
    {"stop_strings", 0.1,
     [](Request& r, Dice&) {
       r.stop_strings = {"computer", " of the", "x"};
     }},
    {"bad_words", 0.1,
     [](Request& r, Dice& d) {
       r.bad_words = {d.word(), d.word(), d.word()};
     }},
    {"dense_bias", 0.02, set_dense_bias},
    {"logit_bias", 0.1,
     [](Request& r, Dice& d) {
       r.logit_bias = {{d.token(), 4.0f}, {d.token(), -100.0f}};
     }},
    {"beams", 0.1, set_beams},
    {"several", 0.1,
     [](Request& r, Dice& d) {
       if (r.sampling.beam_width == 1) r.sampling.num_return_sequences = d.count(2, 5);
     }},
    {"best_of", 0.05,
     [](Request& r, Dice& d) {
       if (r.sampling.beam_width > 1 || r.streaming) return;
       r.sampling.best_of = r.sampling.num_return_sequences.value_or(1) + d.count(0, 3);
     }},
    {"log_probs", 0.3,
     [](Request& r, Dice& d) {
       r.output.return_log_probs = true;
       if (r.sampling.beam_width > 1) return;
       if (d.chance(0.5)) r.output.num_top_log_probs = d.count(0, 20);
       if (d.chance(0.5)) r.output.log_probs_mode = LogProbsMode::kRaw;
     }},
    {"context_logits", 0.01, [](Request& r, Dice&) { r.output.return_context_logits = true; }},
    {"generation_logits", 0.02,
     [](Request& r, Dice&) {
       if (r.sampling.beam_width == 1) r.output.return_generation_logits = true;
     }},
    {"priority", 0.3, [](Request& r, Dice& d) { r.priority = d.real(0, 1); }},
    {"client_id", 0.1, [](Request& r, Dice& d) { r.client_id = d.whole(0, 1000); }},
    {"retention", 0.1, set_retention},
    {"salt", 0.2,
     [](Request& r, Dice& d) {
       r.cache_salt = std::string(1, static_cast<char>(d.whole(65, 68)));
     }},
};

// Options whose result depends on time.
const Feature kDeadline = {
    "deadline", 0.05, [](Request& r, Dice& d) { r.allotted_time = milliseconds(d.whole(1, 400)); }};
constexpr const char* kCancel = "cancel";

}  // namespace

std::vector<std::string> feature_names() {
  std::vector<std::string> names = {kDeadline.name, kCancel};
  for (const Feature& f : kFeatures) names.emplace_back(f.name);
  return names;
}

RequestMaker::RequestMaker(const Limits& limits, uint64_t seed, std::set<std::string> without)
    : limits_(limits), without_(std::move(without)), rng_(seed) {
  for (int i = 0; i < 8; ++i)
    prefixes_.push_back(tokens(std::uniform_int_distribution<int>(20, 200)(rng_)));
}

std::vector<TokenId> RequestMaker::tokens(int64_t count) {
  Dice dice{rng_, limits_};
  std::vector<TokenId> out(static_cast<size_t>(count));
  for (TokenId& t : out) t = dice.token();
  return out;
}

std::vector<TokenId> RequestMaker::prompt() {
  Dice dice{rng_, limits_};
  std::vector<TokenId> out;
  if (dice.chance(0.5)) {
    out = prefixes_[static_cast<size_t>(dice.whole(0, 7))];
    out.resize(static_cast<size_t>(dice.whole(1, static_cast<int64_t>(out.size()))));
  }
  const int64_t room = limits_.max_prompt_tokens - static_cast<int64_t>(out.size());
  const auto rest = tokens(dice.whole(1, dice.chance(0.1) ? room : std::min<int64_t>(room, 60)));
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Request RequestMaker::draw() {
  Dice dice{rng_, limits_};
  Request r;
  r.input_token_ids = prompt();
  r.max_tokens = dice.count(1, limits_.max_new_tokens);
  for (const Feature& f : kFeatures)
    if (dice.chance(f.chance) && !without_.contains(f.name)) f.apply(r, dice);
  return r;
}

Order RequestMaker::make() {
  Order order{draw(), std::nullopt};
  Dice dice{rng_, limits_};
  if (dice.chance(kDeadline.chance) && !without_.contains(kDeadline.name))
    kDeadline.apply(order.request, dice);
  if (dice.chance(0.1) && !without_.contains(kCancel))
    order.cancel_after = milliseconds(dice.whole(0, 300));
  return order;
}

std::vector<std::vector<Request>> RequestMaker::peaks(int count) {
  Dice dice{rng_, limits_};
  std::vector<std::vector<Request>> bursts(4);
  for (int i = 0; i < count; ++i) {
    Request lists;
    lists.input_token_ids = tokens(4);  // short: all start in one step
    lists.max_tokens = 2;
    set_long_lists(lists, dice);
    lists.output.return_log_probs = true;
    lists.output.num_top_log_probs = 20;
    lists.output.log_probs_mode = LogProbsMode::kRaw;
    Request logits;
    logits.input_token_ids = tokens(limits_.max_prompt_tokens);
    logits.max_tokens = limits_.max_new_tokens;
    logits.output.return_context_logits = true;
    logits.output.return_generation_logits = true;
    Request beams;
    beams.input_token_ids = tokens(limits_.max_prompt_tokens);
    beams.max_tokens = limits_.max_new_tokens;
    set_long_lists(beams, dice);
    beams.sampling.beam_width = limits_.max_beam_width;
    beams.sampling.repetition_penalty = 1.5f;
    bursts[0].push_back(std::move(lists));
    bursts[1].push_back(std::move(logits));
    Request short_beams = beams;  // as many at once as the pool has blocks for
    short_beams.input_token_ids = tokens(4);
    short_beams.max_tokens = 3;
    bursts[2].push_back(std::move(beams));
    bursts[3].push_back(std::move(short_beams));
  }
  return bursts;
}

Request RequestMaker::make_repeatable() { return draw(); }

}  // namespace nereid::soak
