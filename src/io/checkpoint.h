// Tensors of a model: of a file in any supported format, and of a directory's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "io/encoding.h"
#include "tensor/dtype.h"

namespace nereid::io {

// A tensor of a file; its bytes are in the mapping.
struct StoredTensor {
  std::string name;
  std::string_view dtype;     // name in the file format: "BF16"
  std::optional<DType> type;  // our type, if there is one
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
  std::shared_ptr<const Encoding> encoding;  // decodes `data`, if there is no type
  bool transposed = false;  // transposed: the encoding's rows are the last dimension, `shape` is
                            // [..., k, n]

  std::string shape_text() const;  // "[4096, 256]"
};

// An open file, by suffix: safetensors, PyTorch (bin, pt, pth), GGUF or a rank's engine (engine).
class TensorFile {
 public:
  // Errors begin with the path. DataLoss: damaged contents.
  static StatusOr<TensorFile> open(const std::filesystem::path& path);
  static StatusOr<TensorFile> open(const OpenFile& file);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::filesystem::path& path() const { return path_; }
  // The part with names, shapes and positions of the tensors.
  std::span<const std::byte> header() const { return header_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  uint64_t file_bytes() const { return file_.bytes().size(); }
  // The file was truncated while open; missing bytes read as zeros.
  bool is_lost() const { return file_.is_lost(); }
  // Rank of an engine's tensors, or of a file written by this program.
  std::optional<int32_t> rank() const { return rank_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::byte> header_;
  std::vector<StoredTensor> tensors_;
  std::optional<int32_t> rank_;
};

// The first file read by Checkpoint::open(); empty: `dir` has none.
std::filesystem::path find_weight_file(const std::filesystem::path& dir);

// All tensors of a model directory: `model.safetensors`, else the shards of
// `model.safetensors.index.json`, else `pytorch_model.bin` likewise.
class Checkpoint {
 public:
  struct Entry {
    const StoredTensor* tensor = nullptr;
    const TensorFile* file = nullptr;
  };

  // NotFound: no such file; DataLoss: damage (a tensor of the index is missing in its shard, a
  // tensor in two shards, ...), with file and tensor.
  static StatusOr<Checkpoint> open(const std::filesystem::path& dir);

  // Replacement of a tensor of file number `file` (from 0): renamed or reshaped, split into parts
  // (pointing into its data), or nothing.
  using Translate =
      std::function<StatusOr<std::vector<StoredTensor>>(size_t file, const StoredTensor&)>;

  // The translated tensors of files in one directory. NotFound: no file; DataLoss: damage or
  // duplicate names; errors of `translate` begin with the path.
  static StatusOr<Checkpoint> open_files(const std::vector<std::filesystem::path>& files,
                                         const Translate& translate);

  // Adds the tensors of another checkpoint. DataLoss: duplicate name.
  Status add(Checkpoint other);

  // Renames all tensors by `name_of`; "" drops one. DataLoss: duplicate name.
  Status rename(const std::function<std::string(const std::string& name)>& name_of);

  // Replacement of several tensors by one or none.
  struct Joined {
    std::vector<std::string> parts;  // names of present tensors, at least one
    std::optional<StoredTensor> whole;
  };
  // DataLoss: a new name is taken, or a part is used twice other than as the only part.
  Status join(std::vector<Joined> joined);

  // Marks an encoded matrix [n, k] as transposed: its tensor is [k, n].
  void turn(const std::string& name);

  // Adds a vector that is in no file. DataLoss: duplicate name.
  Status add_vector(std::string name, std::vector<float> numbers);

  // nullptr: no such tensor.
  const Entry* find(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  // The file named in errors about missing tensors: the index, or the only file.
  const std::filesystem::path& main_file() const { return main_file_; }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  Status add_file(const std::filesystem::path& path);
  Status add_tensor(const StoredTensor& tensor, const TensorFile& file);
  Status open_index(const std::filesystem::path& index_path);

  std::filesystem::path dir_;
  std::filesystem::path main_file_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  std::vector<std::unique_ptr<StoredTensor>> translated_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

}  // namespace nereid::io
