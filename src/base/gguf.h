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
#include "base/mapped_file.h"
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

// The files of a model: one, or the parts that "NAME-00001-of-00003.gguf" and its like are, of
// which `path` may be any; in a folder those of the only model there. NotFound naming the part that
// is missing; InvalidArgument for a folder with several models.
StatusOr<std::vector<std::filesystem::path>> gguf_files(const std::filesystem::path& path);

struct GgufPart {
  std::filesystem::path path;
  MappedFile file;
  Gguf gguf;  // only the first part has more metadata than its number
};
// All parts of a model. InvalidArgument where their numbers and counts do not fit; errors begin
// with a path.
StatusOr<std::vector<GgufPart>> open_gguf_model(const std::filesystem::path& path);

// The metadata (keys and values) of a model: a file, or a folder with its parts. Errors begin with
// the path.
StatusOr<json::object> read_gguf_metadata(const std::filesystem::path& path);

// The ids that end a text: those of tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id, in
// this order; where there is no eot_token_id, the control token that chat templates end a turn
// with, by its text ("<|im_end|>", "<|eot_id|>", ...). Ids that are no index of a token are left
// out.
std::vector<int32_t> gguf_end_ids(const json::object& metadata);

// A file by its name; a folder that has such files and no weights of another format.
bool is_gguf_path(const std::filesystem::path& path);

}  // namespace nereid
