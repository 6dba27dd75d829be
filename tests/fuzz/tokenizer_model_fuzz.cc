// Fuzz target: the input is a SentencePiece model or a file of tiktoken ranks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = text::Tokenizer::from_model_file(input, "tokenizer.model");
  if (!tokenizer.ok()) return -1;
  for (const std::string_view text :
       {" The  quick\u00a0brown \ufb01x", "\u4e2d\u6587 e\u0301 \x01 12", "<s>word<0x41>"}) {
    const auto ids = (*tokenizer)->encode(text);
    if (!ids.ok()) continue;
    text::Detokenizer detokenizer(*tokenizer, true);
    std::string joined;
    for (const int32_t id : *ids) joined += detokenizer.push(id);
    joined += detokenizer.finish();
    if (joined != (*tokenizer)->decode(*ids, true)) std::abort();
  }
  return 0;
}
