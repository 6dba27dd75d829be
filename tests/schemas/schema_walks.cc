// Compiles schemas, tries texts on them and walks them at random, for tests/schemas/corpus.py.
// Reads a JSON document a line, {"schema": TEXT, "texts": [TEXT...], "walks": COUNT}, and answers
// each with the time of compiling in us of CPU, why the schema is refused, which of the texts are
// allowed, and the texts of the walks that came to an end.
#include <fmt/format.h>
#include <time.h>

#include <iostream>
#include <random>
#include <set>
#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace nereid {
namespace {

using text::Grammar;
using text::Matcher;

int64_t cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000 + t.tv_nsec / 1000;
}

// Names and texts of the schema, as JSON.
void add_texts(const json::value& value, std::set<std::string>& texts) {
  constexpr size_t kLongest = 60;
  const auto add = [&](std::string_view text) {
    if (text.size() <= kLongest) texts.insert(json::serialize(json::string(text)));
  };
  if (value.is_string()) add(value.get_string());
  if (value.is_array())
    for (const json::value& inner : value.get_array()) add_texts(inner, texts);
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.get_object()) {
    add(key);
    add_texts(inner, texts);
  }
}

// All bytes, then what is likely to fit.
std::vector<std::string> vocabulary(const json::value& schema) {
  std::set<std::string> texts = {"null", "true",  "false", "0",  "1",  "-1",   "1.5",
                                 "10",   "\"a\"", "\"\"",  "{}", "[]", "\"1\""};
  add_texts(schema, texts);
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
  all.insert(all.end(), texts.begin(), texts.end());
  return all;
}

class Walker {
 public:
  Walker(std::shared_ptr<Grammar> grammar, std::mt19937& random)
      : matcher_(grammar), tokens_(grammar->tokens()), random_(random) {}

  // Empty: there was no end.
  StatusOr<std::string> walk() {
    constexpr size_t kEnough = 200, kMost = 4000;
    std::vector<uint32_t> mask((static_cast<size_t>(tokens_.vocab_size()) + 31) / 32);
    while (text_.size() < kMost) {
      RETURN_IF_ERROR(matcher_.fill_mask(mask, {}));
      sort_out(mask);
      const bool stuck = names_.empty() && closing_.empty() && plain_.empty() && rest_.empty();
      if (matcher_.may_end() && (stuck || one_in(2))) return text_;
      if (stuck) return internal_error("nothing may follow '{}'", text_);
      const std::string_view token = tokens_.token(pick(text_.size() > kEnough));
      RETURN_IF_ERROR(matcher_.accept(token));
      text_ += token;
    }
    return std::string();
  }

 private:
  using Ids = std::vector<int32_t>;

  bool one_in(uint32_t count) { return random_() % count == 0; }
  void sort_out(const std::vector<uint32_t>& mask) {
    for (Ids* ids : {&names_, &closing_, &plain_, &rest_}) ids->clear();
    for (int32_t id = 0; id < tokens_.vocab_size(); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
      const bool closes = id == '"' || id == '}' || id == ']';
      (id > 255 ? names_ : closes ? closing_ : id > ' ' && id < 127 ? plain_ : rest_).push_back(id);
    }
  }
  int32_t pick(bool to_end) {
    const Ids* some[] = {&names_, &closing_, &plain_, &rest_};
    if (to_end || one_in(3)) std::swap(some[0], some[1]);
    if (one_in(8)) std::swap(some[0], some[2]);
    if (!to_end && one_in(40)) std::swap(some[0], some[3]);
    for (const Ids* ids : some)
      if (!ids->empty()) return (*ids)[random_() % ids->size()];
    return 0;
  }

  Matcher matcher_;
  const text::TokenTrie& tokens_;
  std::mt19937& random_;
  std::string text_;
  Ids names_, closing_, plain_, rest_;
};

bool is_taken(const std::shared_ptr<Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept(text).ok() && matcher.may_end();
}

StatusOr<json::object> answer(const json::value& line, std::mt19937& random) {
  const std::string_view schema = line.at("schema").as_string();
  text::WorkLimit work;
  const int64_t before = cpu_us();
  auto network = Grammar::parse(text::GrammarKind::kJsonSchema, schema, work);
  json::object out = {{"us", cpu_us() - before}};
  if (!network.ok()) {
    out["error"] = message(network.status());
    return out;
  }
  ASSIGN_OR_RETURN(const json::value parsed, parse_json(schema));
  const std::vector<std::string> all = vocabulary(parsed);
  const auto tokens = std::make_shared<const text::TokenTrie>(
      static_cast<int32_t>(all.size()),
      [&](int32_t id) { return std::string_view(all[static_cast<size_t>(id)]); });
  const std::shared_ptr<Grammar> grammar = Grammar::of(*std::move(network), tokens);
  json::array taken, texts;
  for (const json::value& text : line.at("texts").as_array())
    taken.push_back(is_taken(grammar, text.as_string()));
  for (int64_t i = 0; i < line.at("walks").as_int64(); ++i) {
    const StatusOr<std::string> text = Walker(grammar, random).walk();
    if (!text.ok()) out["walk_error"] = message(text.status());
    if (text.ok() && !text->empty()) texts.push_back(json::string(*text));
  }
  out["taken"] = std::move(taken);
  out["texts"] = std::move(texts);
  return out;
}

Status run(uint32_t seed) {
  std::mt19937 random(seed);
  std::string line;
  while (std::getline(std::cin, line)) {
    ASSIGN_OR_RETURN(const json::value input, parse_json(line));
    ASSIGN_OR_RETURN(const json::object out, answer(input, random));
    std::cout << json::serialize(out) << std::endl;
  }
  return ok();
}

}  // namespace
}  // namespace nereid

int main(int argc, char** argv) {
  const uint32_t seed = argc > 1 ? static_cast<uint32_t>(std::stoul(argv[1])) : 1;
  const nereid::Status status = nereid::run(seed);
  if (!status.ok()) fmt::print(stderr, "schema_walks: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
