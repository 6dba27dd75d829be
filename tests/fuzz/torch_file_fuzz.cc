// libFuzzer entry: any bytes as a file of PyTorch. Reads every tensor it is given.
#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "io/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = nereid::io::parse_torch_file(std::as_bytes(std::span(data, size)));
  if (!tensors.ok()) return -1;
  for (const nereid::io::StoredTensor& tensor : *tensors)
    (void)nereid::hash64(tensor.data.data(), tensor.data.size());
  return 0;
}
