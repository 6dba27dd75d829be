// Schemas, regular expressions, grammars and structural tags: those that compile are walked with
// their own masks. The first byte selects the kind.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/grammar/grammar.h"

using namespace nereid;
using namespace nereid::text;

namespace {

std::shared_ptr<const TokenTrie> fuzz_tokens() {
  static const auto tokens = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"{\"", "\":", "\",", "\"}", "true", "12", "  ", "ab", "]}", ""})
      texts.emplace_back(text);
    return std::make_shared<const TokenTrie>(static_cast<int32_t>(texts.size()), [&](int32_t id) {
      return std::string_view(texts[static_cast<size_t>(id)]);
    });
  }();
  return tokens;
}

// Each token of the mask must be taken, and a text always goes on or may end.
void walk(const std::shared_ptr<Grammar>& grammar, uint32_t choice) {
  const TokenTrie& tokens = grammar->tokens();
  const int32_t end_id = tokens.vocab_size() - 1;
  Matcher matcher(grammar);
  std::vector<uint32_t> mask((static_cast<size_t>(tokens.vocab_size()) + 31) / 32);
  for (int step = 0; step < 12; ++step) {
    if (!matcher.fill_mask(mask, {&end_id, 1}).ok()) return;  // too much work
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokens.vocab_size(); ++id)
      if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.push_back(id);
    NEREID_CHECK(!allowed.empty());
    choice = choice * 1664525 + 1013904223;
    const int32_t id = allowed[(choice >> 8) % allowed.size()];
    if (id == end_id) {
      NEREID_CHECK(matcher.may_end());
      return;
    }
    const Status status = matcher.accept(tokens.token(id));
    if (status.code() == absl::StatusCode::kResourceExhausted) return;
    NEREID_CHECK(status.ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return -1;
  constexpr GrammarKind kKinds[] = {GrammarKind::kJsonSchema, GrammarKind::kRegex,
                                    GrammarKind::kEbnf, GrammarKind::kStructuralTag};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto grammar = Grammar::compile(kKinds[data[0] % std::size(kKinds)], text, fuzz_tokens());
  if (!grammar.ok()) return -1;
  walk(*grammar, static_cast<uint32_t>(size));
  return 0;
}
