// The tensors of a model: of a file of any format that is read, and of a directory's files.
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

// One tensor of a file; the bytes live in the mapping.
struct StoredTensor {
  std::string name;
  std::string_view dtype;     // the format's name: "BF16"
  std::optional<DType> type;  // ours, when we have one
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
  std::shared_ptr<const Encoding>
      encoding;         // how `data` stands for numbers, where there is no type
  bool turned = false;  // the encoding's rows are the last dimension: `shape` is [..., k, n]

  std::string shape_text() const;  // "[4096, 256]"
};

// One open file: safetensors, or PyTorch's (".bin", ".pt", ".pth"), GGUF (".gguf") or a rank's
// engine
// (".engine") by the end of its name.
class TensorFile {
 public:
  // Errors begin with the path. DataLoss for damaged contents.
  static StatusOr<TensorFile> open(const std::filesystem::path& path);
  static StatusOr<TensorFile> open(const OpenFile& file);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::filesystem::path& path() const { return path_; }
  // The part that names the tensors, with their shapes and places.
  std::span<const std::byte> header() const { return header_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  uint64_t file_bytes() const { return file_.bytes().size(); }
  // It has become smaller since it was opened; zeros took the place of what went.
  bool is_lost() const { return file_.is_lost(); }
  // Of the rank whose tensors an engine has; of other files those that this program wrote say it.
  std::optional<int32_t> rank() const { return rank_; }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::span<const std::byte> header_;
  std::vector<StoredTensor> tensors_;
  std::optional<int32_t> rank_;
};

// The file that Checkpoint::open() begins with; empty when `dir` has none.
std::filesystem::path find_weight_file(const std::filesystem::path& dir);

// All tensors of a model directory: `model.safetensors`, else the shards that
// `model.safetensors.index.json` names, else the same of `pytorch_model.bin`.
class Checkpoint {
 public:
  struct Entry {
    const StoredTensor* tensor = nullptr;
    const TensorFile* file = nullptr;
  };

  // NotFound when the directory has no such file; DataLoss for damage (a shard without a tensor
  // that the index promises, a tensor in two shards, ...), naming file and tensor.
  static StatusOr<Checkpoint> open(const std::filesystem::path& dir);

  // What stands for one tensor of a file (counted from 0): itself under another name or in another
  // shape, named parts of it, which point into its data, or nothing.
  using Translate =
      std::function<StatusOr<std::vector<StoredTensor>>(size_t file, const StoredTensor&)>;

  // The tensors of files in one directory, translated. NotFound without a file; DataLoss for damage
  // or two tensors of one name; errors of `translate` begin with the path.
  static StatusOr<Checkpoint> open_files(const std::vector<std::filesystem::path>& files,
                                         const Translate& translate);

  // Adds the tensors of another one. DataLoss when a name is taken.
  Status add(Checkpoint other);

  // Calls every tensor what `name_of` makes of its name, and leaves out those of which it makes
  // nothing. DataLoss when two get one name.
  Status rename(const std::function<std::string(const std::string& name)>& name_of);

  // A tensor instead of those that it is made of, or nothing instead of them.
  struct Joined {
    std::vector<std::string> parts;  // names of tensors that are there, one at least
    std::optional<StoredTensor> whole;
  };
  // DataLoss when a new name is taken, or a part is used twice but as the only part of each.
  Status join(std::vector<Joined> joined);

  // Says of an encoded matrix [n, k] that is there: the tensor that it stands for is [k, n].
  void turn(const std::string& name);

  // A vector that no file has. DataLoss when the name is taken.
  Status add_vector(std::string name, std::vector<float> numbers);

  // nullptr when there is no such tensor.
  const Entry* find(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  // The file a person should look at when something is missing: the index, or the only file.
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
