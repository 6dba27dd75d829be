// What guided decoding costs on one thread: compiling a grammar, and the mask of each token of
// texts that are drawn from the masks themselves.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <set>

#include "base/rng.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::bench {
namespace {

using text::GrammarKind;

struct Options {
  std::string tokenizer;  // none: a vocabulary that is made here
  int32_t vocab = 128'000;
  int32_t texts = 30;
  int32_t tokens = 200;  // of each text at most
};

struct Case {
  const char* name;
  GrammarKind kind;
  const char* guide;
};

constexpr Case kCases[] = {
    {"any JSON object", GrammarKind::kJsonObject, ""},
    {"record", GrammarKind::kJsonSchema,
     R"({"type": "object", "properties": {"id": {"type": "integer", "minimum": 1, "maximum": 99999},
         "name": {"type": "string"}, "price": {"type": "number"}, "in_stock": {"type": "boolean"},
         "colour": {"enum": ["red", "green", "blue"]}},
         "required": ["id", "name", "price"], "additionalProperties": false})"},
    {"strings with maxLength", GrammarKind::kJsonSchema,
     R"({"type": "object", "properties": {"title": {"type": "string", "maxLength": 80},
         "text": {"type": "string", "minLength": 20, "maxLength": 500}},
         "required": ["title", "text"], "additionalProperties": false})"},
    {"lists of records", GrammarKind::kJsonSchema,
     R"({"$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"},
         "at": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}},
         "required": ["city", "at"], "additionalProperties": false}},
         "type": "array", "items": {"$ref": "#/$defs/place"}, "minItems": 1, "maxItems": 20})"},
    {"date and time", GrammarKind::kRegex, "\\d{4}-(0[1-9]|1[0-2])-[0-3]\\d(T[0-2]\\d:[0-5]\\d)?"},
    {"words", GrammarKind::kRegex, "[A-Z][a-z]{1,12}( [a-z]{1,12}){3,40}\\."},
    {"sums", GrammarKind::kEbnf, "root ::= term ([+*-] term)*\nterm ::= [0-9]+ | \"(\" root \")\""},
};

// CPU time: neighbours on the machine disturb it through the caches alone.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  uint32_t roll(size_t sides) { return philox(seed_, at_++, 0)[0] % static_cast<uint32_t>(sides); }

 private:
  const uint64_t seed_;
  uint64_t at_ = 0;
};

// All bytes; then words of syllables, half of them behind a blank, with numbers, punctuation and
// letters of two and three bytes among them.
std::shared_ptr<const text::TokenTrie> made_tokens(int32_t vocab) {
  constexpr std::string_view kFirst = "bcdfghjklmnprstvw", kSecond = "aeiou",
                             kMarks = "\"{}[]:,.-_()<>/=;\n ";
  Dice dice(1);
  std::set<std::string> known;
  for (int byte = 0; byte < 256; ++byte) known.emplace(1, static_cast<char>(byte));
  while (known.size() < static_cast<size_t>(vocab)) {
    const uint32_t kind = dice.roll(20);
    std::string s;
    if (kind < 16) {
      for (uint32_t n = 1 + dice.roll(4); n > 0; --n) {
        s += kFirst[dice.roll(kFirst.size())];
        s += kSecond[dice.roll(kSecond.size())];
        if (dice.roll(3) == 0) s += kFirst[dice.roll(kFirst.size())];
      }
      if (kind < 4) s[0] = static_cast<char>(s[0] - 'a' + 'A');
      if (kind % 2 == 0) s.insert(0, " ");
    } else if (kind == 16) {
      for (uint32_t n = 1 + dice.roll(3); n > 0; --n) s += static_cast<char>('0' + dice.roll(10));
    } else if (kind == 17) {
      for (uint32_t n = 2 + dice.roll(3); n > 0; --n) s += kMarks[dice.roll(kMarks.size())];
    } else {
      for (uint32_t n = 1 + dice.roll(3); n > 0; --n) {
        s += kind == 18 ? "\xd0" : "\xe4\xb8";
        s += static_cast<char>(0x80 + dice.roll(64));
      }
    }
    known.insert(std::move(s));
  }
  const std::vector<std::string> all(known.begin(), known.end());
  return std::make_shared<const text::TokenTrie>(
      vocab, [&](int32_t id) { return std::string_view(all[static_cast<size_t>(id)]); });
}

// The n-th set bit.
int32_t nth(const std::vector<uint32_t>& mask, uint32_t n) {
  size_t word = 0;
  for (; n >= static_cast<uint32_t>(std::popcount(mask[word])); ++word)
    n -= static_cast<uint32_t>(std::popcount(mask[word]));
  uint32_t bits = mask[word];
  for (; n > 0; --n) bits &= bits - 1;
  return static_cast<int32_t>(word * 32) + std::countr_zero(bits);
}

// Draws a text; adds the time of each mask, in us, with that of taking the token before it.
Status draw(const std::shared_ptr<text::Grammar>& grammar, int32_t most, uint64_t seed,
            std::vector<double>& us) {
  Dice dice(seed);
  text::Matcher matcher(grammar);
  const text::TokenTrie& tokens = grammar->tokens();
  std::vector<uint32_t> mask((static_cast<size_t>(tokens.vocab_size()) + 31) / 32);
  std::string_view token;
  for (int32_t i = 0; i < most; ++i) {
    const double before = cpu_seconds();
    if (i > 0) RETURN_IF_ERROR(matcher.accept(token));
    RETURN_IF_ERROR(matcher.fill_mask(mask, {}));
    us.push_back((cpu_seconds() - before) * 1e6);
    uint32_t allowed = 0;
    for (const uint32_t word : mask) allowed += static_cast<uint32_t>(std::popcount(word));
    if (allowed == 0) break;
    token = tokens.token(nth(mask, dice.roll(allowed)));
  }
  return ok();
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

Status measure(const Options& o) {
  const double start = cpu_seconds();
  std::shared_ptr<const text::TokenTrie> tokens;
  if (o.tokenizer.empty()) {
    tokens = made_tokens(o.vocab);
  } else {
    ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(o.tokenizer));
    tokens = text::TokenTrie::of(*tokenizer, tokenizer->vocab_size());
  }
  fmt::print("{} tokens, {} nodes, read in {:.0f} ms\n", tokens->vocab_size(),
             tokens->nodes().size(), (cpu_seconds() - start) * 1e3);
  for (const Case& c : kCases) {
    std::vector<double> us, first, compile;
    std::shared_ptr<text::Grammar> grammar;
    for (int i = 0; i < 20; ++i) {
      const double before = cpu_seconds();
      ASSIGN_OR_RETURN(grammar, text::Grammar::compile(c.kind, c.guide, tokens));
      compile.push_back((cpu_seconds() - before) * 1e6);
    }
    RETURN_IF_ERROR(draw(grammar, o.tokens, 0, first));
    for (int32_t text = 1; text <= o.texts; ++text)
      RETURN_IF_ERROR(draw(grammar, o.tokens, static_cast<uint64_t>(text), us));
    std::ranges::sort(compile), std::ranges::sort(first), std::ranges::sort(us);
    fmt::print(
        "{:>22}: compile {:.0f} us; first text {} masks, mean {:.1f} us, most {:.0f}; then {} "
        "masks, "
        "mean {:.1f} us, p99 {:.1f}, most {:.0f}\n",
        c.name, compile[compile.size() / 2], first.size(), mean(first), first.back(), us.size(),
        mean(us), us[us.size() * 99 / 100], us.back());
  }
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  nereid::bench::Options o;
  CLI::App app("times of masks and of compiling grammars, us of CPU time");
  app.add_option("--tokenizer", o.tokenizer, "file or directory; none: a made vocabulary");
  app.add_option("--vocab", o.vocab, "tokens of the made vocabulary")
      ->check(CLI::Range(1000, 300'000))
      ->capture_default_str();
  app.add_option("--texts", o.texts, "drawn after the first")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--tokens", o.tokens, "of each text at most")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const nereid::Status status = nereid::bench::measure(o);
  if (!status.ok()) fmt::print(stderr, "mask_cost: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
