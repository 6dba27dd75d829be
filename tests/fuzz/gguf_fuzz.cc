// libFuzzer entry: any bytes as a GGUF file: its metadata, its tokenizer and every tensor.
#include <cstddef>
#include <cstdint>

#include "base/gguf.h"
#include "base/hash.h"
#include "io/gguf_file.h"
#include "read_corners.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto gguf = nereid::parse_gguf(file);
  if (!gguf.ok()) return -1;
  if (const auto tokenizer = nereid::text::Tokenizer::from_gguf(gguf->metadata); tokenizer.ok())
    (void)(*tokenizer)->encode("The quick <s> brown 12");
  const auto tensors = nereid::io::parse_gguf_tensors(file);
  if (!tensors.ok()) return -1;
  for (const nereid::io::StoredTensor& tensor : *tensors) {
    (void)nereid::hash64(tensor.data.data(), tensor.data.size());
    if (tensor.encoding && !tensor.data.empty()) read_corners(tensor);
  }
  return 0;
}
