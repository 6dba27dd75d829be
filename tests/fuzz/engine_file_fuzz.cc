// libFuzzer entry: any bytes as an engine file. Fields that random bytes would never get right are
// repaired first, so that the header's parser is reached: checksums, format version, place and
// length of the weights. Every weight is read.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/round_up.h"
#include "io/engine_file.h"
#include "io/engine_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid;
  std::vector<uint8_t> bytes(data, data + size);
  if (io::EnginePrefix prefix; size >= sizeof prefix) {
    std::memcpy(&prefix, bytes.data(), sizeof prefix);
    if (prefix.header_bytes <= size - sizeof prefix) {
      prefix.header_checksum = hash64(bytes.data() + sizeof prefix, prefix.header_bytes);
      prefix.format_version = io::kEngineFormatVersion;
      prefix.blob_offset = round_up(sizeof prefix + prefix.header_bytes, io::kBlobAlignment);
      if (size < prefix.blob_offset) bytes.resize(prefix.blob_offset);
      prefix.blob_bytes = bytes.size() - prefix.blob_offset;
    }
    prefix.checksum = prefix.compute_checksum();
    std::memcpy(bytes.data(), &prefix, sizeof prefix);
  }
  const auto engine = io::parse_engine(std::as_bytes(std::span(bytes)));
  if (!engine.ok()) return -1;
  if (!engine->rank_tensors.empty()) (void)io::verify_rank_tensors(*engine);
  if (engine->blob.empty()) return 0;
  for (const io::PlanWeight& w : engine->plan.weights)
    for (const io::Plane& plane : w.planes)
      (void)io::weight_checksum(engine->blob.data() + plane.offset, plane.shape.bytes);
  return 0;
}
