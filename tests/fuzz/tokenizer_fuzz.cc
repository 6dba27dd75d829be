// Fuzz target: the input's first part is a tokenizer.json, the rest (after a NUL) text to encode.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view text = cut == input.npos ? input : input.substr(cut + 1);
  const auto document = parse_json(input.substr(0, cut));
  if (!document.ok()) return -1;
  const auto tokenizer = text::Tokenizer::from_json(*document);
  if (!tokenizer.ok()) return -1;
  for (const bool parse_special : {true, false}) {
    const auto ids = (*tokenizer)->encode(text, {.parse_special = parse_special});
    if (!ids.ok()) continue;
    text::Detokenizer detokenizer(*tokenizer, false);
    std::string joined;
    for (const int32_t id : *ids) joined += detokenizer.push(id);
    joined += detokenizer.finish();
    if (joined != (*tokenizer)->decode(*ids, false)) std::abort();
  }
  return 0;
}
