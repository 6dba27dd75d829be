// The header of a GGUF file: metadata and where the tensors lie. The bytes are hostile: every count
// is proven against what is left of the file before memory is taken for it. Format: docs/gguf.md of
// ggml-org/ggml, versions 2 and 3, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid {

struct GgufTensor {
  std::string name;
  uint32_t type = 0;           // ggml_type
  std::vector<int64_t> shape;  // outermost first, the other way round than in the file
  uint64_t offset = 0;         // in the file's data
};

struct Gguf {
  json::object metadata;  // "general.architecture": ...
  std::vector<GgufTensor> tensors;
  uint64_t data_begin = 0;  // of the tensors' data in the file; not more than the file's size
};

// InvalidArgument naming the key or tensor and what is wrong.
StatusOr<Gguf> parse_gguf(std::span<const std::byte> file);

// Of a file; errors begin with its path.
StatusOr<json::object> read_gguf_metadata(const std::filesystem::path& path);

bool is_gguf_path(const std::filesystem::path& path);  // by its name; not a directory

}  // namespace nereid
