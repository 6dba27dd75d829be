// Reader of safetensors files. The bytes are hostile: every offset is proven before a tensor can be
// looked at. Format: 8-byte little-endian header length, JSON header {name: {dtype, shape,
// data_offsets}}, data without holes (github.com/huggingface/safetensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"

namespace nereid::io {

inline constexpr uint64_t kMaxSafetensorsHeaderBytes = uint64_t{100} << 20;

// What a header's `__metadata__` calls the rank that a file belongs to, in decimal digits. Programs
// that do not know it pass it over.
inline constexpr std::string_view kRankMetadata = "nereid.rank";

// Parses a whole file's bytes, which must outlive the tensors. InvalidArgument naming the tensor
// and field; order is by position in the file. `rank` gets what the header says of it, if anything.
StatusOr<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                      std::optional<int32_t>* rank = nullptr);

// The part of a file before the data.
StatusOr<std::span<const std::byte>> safetensors_header(std::span<const std::byte> file);

// The bytes of a file with these tensors, in this order.
std::string serialize_safetensors(std::span<const StoredTensor> tensors);

}  // namespace nereid::io
