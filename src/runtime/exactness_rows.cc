// The rows of the exactness suite: one request for each feature.
#include "nereid/request.h"
#include "runtime/exactness.h"

namespace nereid::runtime::exactness {
namespace {

// Much randomness: the model is sure of itself, and a row must have something to choose from.
void sampled(Request& r) {
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 4.0f;
  r.sampling.seed = 11;
}

std::string text_of(const Aids& aids, size_t first, size_t count) {
  return aids.tokenizer.decode(std::span(aids.greedy).subspan(first, count), true);
}

using R = Request&;
using A = const Aids&;

const Row kRows[] = {
    {"greedy", nullptr, 0, [](R, A) {}},
    {"greedy_exact_blocks", "greedy", 1, [](R, A) {}},
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

// Encoded and cut to length.
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
  for (const size_t length : {37u, 48u, 71u})
    out.emplace_back(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(length));
  return out;
}

std::span<const Row> rows() { return kRows; }

}  // namespace nereid::runtime::exactness
