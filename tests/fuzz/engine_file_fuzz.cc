// libFuzzer entry: any bytes as an engine file. The checksums that random bytes would never get
// right are repaired first, so that the header's parser is reached; every weight is read.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "io/engine_file.h"
#include "io/engine_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::io;
  std::vector<uint8_t> bytes(data, data + size);
  if (EnginePrefix prefix; size >= sizeof prefix) {
    std::memcpy(&prefix, bytes.data(), sizeof prefix);
    if (prefix.header_bytes <= size - sizeof prefix)
      prefix.header_checksum = nereid::hash64(bytes.data() + sizeof prefix, prefix.header_bytes);
    prefix.checksum = prefix.compute_checksum();
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
  }
  const auto engine = parse_engine(std::as_bytes(std::span(bytes)));
  if (!engine.ok() || !engine->checkpoint.empty()) return 0;
  for (const Weight& w : engine->plan.weights)
    for (const Plane& plane : w.planes)
      (void)weight_checksum(engine->blob.data() + plane.offset, plane.shape.bytes);
  return 0;
}
