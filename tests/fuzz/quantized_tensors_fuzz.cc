// libFuzzer entry: a byte that chooses what to make, one that varies its layout, and any bytes as a
// safetensors file, whose first tensors are its parts.
#include <cstddef>
#include <cstdint>

#include "io/quantized_tensors.h"
#include "io/safetensors.h"
#include "read_corners.h"

namespace {

using namespace nereid::io;

nereid::StatusOr<StoredTensor> make(uint8_t what, uint8_t layout, const StoredTensor* const* t) {
  const int64_t group = layout >> 4 == 0 ? 0 : int64_t{1} << (layout >> 4);
  if (what % 4 == 0 && (what & 8) != 0) {  // with offsets
    const bool is_four = (what & 4) != 0;
    return packed_integers(
        "w", {t[0], t[1], nullptr, nullptr, t[3], t[2]},
        {is_four ? Packing::kPairsOfRows : Packing::kBytes, is_four ? 4 : 8, group});
  }
  switch (what % 4) {
    case 0:
      return packed_integers("w", {t[0], t[1], t[2], t[3], t[4]},
                             {static_cast<Packing>(layout & 3), what & 4 ? 4 : 8, group,
                              static_cast<int32_t>(layout >> 2 & 1)});
    case 1:
      return scaled_bytes("w", {t[0], t[1], t[2]}, {layout & 15, group, 0.5f});
    case 2:
      return e2m1_blocks("w", {t[0], t[1], t[2], (layout & 1) != 0, (layout & 2) != 0});
    default:
      return table_nibbles("w", {t[0], t[1], t[2], t[3], t[4]}, {layout & 15, group, 64, 256, 0});
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return -1;
  const auto tensors = parse_safetensors(std::as_bytes(std::span(data + 2, size - 2)));
  if (!tensors.ok() || tensors->empty()) return -1;
  const StoredTensor* parts[5] = {};
  for (size_t i = 0; i < 5 && i < tensors->size(); ++i) parts[i] = &(*tensors)[i];
  const auto made = make(data[0], data[1], parts);
  if (!made.ok()) return -1;
  read_corners(*made);
  return 0;
}
