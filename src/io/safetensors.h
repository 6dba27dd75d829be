// Reader of safetensors files. The bytes are hostile: offsets are proven before a tensor is
// returned. Format: 8-byte little-endian header length, JSON header {name: {dtype, shape,
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

// `__metadata__` key of a file's rank, in decimal; ignored by other programs.
inline constexpr std::string_view kRankMetadata = "nereid.rank";

// Parses a file's bytes, which must outlive the tensors; order by position. `rank`: from the
// metadata, if present. InvalidArgument with tensor and field.
StatusOr<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                      std::optional<int32_t>* rank = nullptr);

// The part before the data.
StatusOr<std::span<const std::byte>> safetensors_header(std::span<const std::byte> file);

// Bytes of a file with these tensors in order.
std::string serialize_safetensors(std::span<const StoredTensor> tensors);

}  // namespace nereid::io
