// The header of a GGUF file: metadata and the tensors' positions. The bytes are hostile: every
// count is checked against the rest of the file before memory is taken for it. Format: docs/gguf.md
// of ggml-org/ggml, versions 2 and 3, little-endian.
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
  uint32_t type = 0;           // ggml_type, the tensor's element type
  std::vector<int64_t> shape;  // outermost dimension first; the file stores the reverse
  uint64_t offset = 0;         // bytes from data_begin
};

struct Gguf {
  json::object metadata;  // keys and values, such as "general.architecture"
  std::vector<GgufTensor> tensors;
  uint64_t data_begin = 0;  // offset of the tensors' data in the file; at most the file's size
};

// InvalidArgument naming the key or tensor and what is wrong.
StatusOr<Gguf> parse_gguf(std::span<const std::byte> file);

// The files of a model: a single file, or all parts of a split model ("NAME-00001-of-00003.gguf"),
// any of which `path` may name. For a folder: those of its only model. NotFound naming the missing
// part; InvalidArgument for a folder with several models.
StatusOr<std::vector<std::filesystem::path>> gguf_files(const std::filesystem::path& path);

struct GgufPart {
  std::filesystem::path path;
  MappedFile file;
  Gguf gguf;  // parts after the first: metadata is the part number alone
};
// All parts of a model. InvalidArgument where part numbers and counts disagree; errors
// begin with a path.
StatusOr<std::vector<GgufPart>> open_gguf_model(const std::filesystem::path& path);

// The metadata (keys and values) of a model: of a file, or of a folder with all parts of a model.
// Errors begin with the path.
StatusOr<json::object> read_gguf_metadata(const std::filesystem::path& path);

// The end ids of a model: tokenizer.ggml.eos_token_id, eot_token_id and eom_token_id, in this
// order. Without eot_token_id its place is taken by the control token with which chat
// templates end a turn, found by its text ("<|im_end|>", "<|eot_id|>", ...). Ids outside the
// vocabulary are left out.
std::vector<int32_t> gguf_end_ids(const json::object& metadata);

// True for a file name ending in .gguf, and for a folder with such files and no weights
// of another format.
bool is_gguf_path(const std::filesystem::path& path);

}  // namespace nereid
