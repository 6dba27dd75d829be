// The time of each mask along given texts, for bench/mask_peers.py. Reads one JSON document: the
// tokens as hexadecimal bytes, and cases of a schema with texts as token ids; writes what each
// schema took to compile and each mask with the token before it, in ns of CPU time.
#include <fmt/format.h>
#include <time.h>

#include <charconv>
#include <iostream>
#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace nereid::bench {
namespace {

int64_t cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string bytes_of(std::string_view hex) {
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint8_t byte = 0;
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, byte, 16);
    bytes[i] = static_cast<char>(byte);
  }
  return bytes;
}

// The masks of one text; false: a token was not allowed.
StatusOr<bool> replay(const std::shared_ptr<text::Grammar>& grammar, const json::array& ids,
                      json::array& times) {
  text::Matcher matcher(grammar);
  const text::TokenTrie& tokens = grammar->tokens();
  std::vector<uint32_t> mask((static_cast<size_t>(tokens.vocab_size()) + 31) / 32);
  for (size_t i = 0; i <= ids.size(); ++i) {
    const int64_t before = cpu_ns();
    if (i > 0 && !matcher.accept(tokens.token(ids[i - 1].to_number<int32_t>())).ok()) return false;
    RETURN_IF_ERROR(matcher.fill_mask(mask, {}));
    times.push_back(cpu_ns() - before);
    if (i == ids.size()) break;
    const auto next = ids[i].to_number<size_t>();
    if ((mask[next / 32] >> (next % 32) & 1) == 0) return false;
  }
  return matcher.may_end();
}

Status run() {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  ASSIGN_OR_RETURN(const json::value input, parse_json(text));
  std::vector<std::string> all;
  for (const json::value& token : input.at("tokens").as_array())
    all.push_back(bytes_of(token.as_string()));
  const auto tokens = std::make_shared<const text::TokenTrie>(
      static_cast<int32_t>(all.size()),
      [&](int32_t id) { return std::string_view(all[static_cast<size_t>(id)]); });
  json::array out;
  for (const json::value& one : input.at("cases").as_array()) {
    const std::string schema = json::serialize(one.at("schema"));
    const int64_t before = cpu_ns();
    ASSIGN_OR_RETURN(const auto grammar,
                     text::Grammar::compile(text::GrammarKind::kJsonSchema, schema, tokens));
    json::object result = {{"compile", cpu_ns() - before}};
    json::array times;
    int64_t refused = 0;
    for (const json::value& ids : one.at("texts").as_array()) {
      ASSIGN_OR_RETURN(const bool taken, replay(grammar, ids.as_array(), times));
      refused += taken ? 0 : 1;
    }
    result["masks"] = std::move(times);
    result["refused"] = refused;
    out.push_back(std::move(result));
  }
  std::cout << json::serialize(out) << '\n';
  return ok();
}

}  // namespace
}  // namespace nereid::bench

int main() {
  const nereid::Status status = nereid::bench::run();
  if (!status.ok()) fmt::print(stderr, "mask_replay: {}\n", nereid::message(status));
  return status.ok() ? 0 : 1;
}
