#include "io/torch_file.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "io/pickle.h"
#include "io/zip.h"

namespace nereid::io {
namespace {

struct StorageRow {
  std::string_view name;
  std::string_view dtype;  // safetensors' name of the type
  uint64_t bytes;
  std::optional<DType> type;
};
constexpr StorageRow kStorages[] = {
    {"FloatStorage", "F32", 4, DType::kF32},      {"HalfStorage", "F16", 2, DType::kF16},
    {"BFloat16Storage", "BF16", 2, DType::kBF16}, {"DoubleStorage", "F64", 8, std::nullopt},
    {"LongStorage", "I64", 8, DType::kI64},       {"IntStorage", "I32", 4, DType::kI32},
    {"ShortStorage", "I16", 2, std::nullopt},     {"CharStorage", "I8", 1, DType::kI8},
    {"ByteStorage", "U8", 1, DType::kU8},         {"BoolStorage", "BOOL", 1, std::nullopt}};

using Files = std::map<std::string_view, std::span<const std::byte>>;  // without the folder

// Row-major without holes; dimensions of size 1 may have any stride.
bool is_contiguous(const PickledTensor& tensor) {
  uint64_t step = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && static_cast<uint64_t>(tensor.stride[i]) != step) return false;
    step *= static_cast<uint64_t>(tensor.shape[i]);
  }
  return true;
}

StatusOr<StoredTensor> place(const PickledTensor& pickled, const Files& files) {
  const std::string_view name = pickled.name.substr(0, 200);
  StoredTensor tensor;
  tensor.name = pickled.group.empty() ? std::string(pickled.name)
                                      : fmt::format("{}.{}", pickled.group, pickled.name);
  tensor.shape = pickled.shape;
  const StorageRow* row = nullptr;
  for (const StorageRow& storage : kStorages)
    if (storage.name == pickled.storage_type) row = &storage;
  if (!row)
    return invalid_argument("tensor '{}': storage '{}' is not known", name,
                            pickled.storage_type.substr(0, 40));
  tensor.dtype = row->dtype;
  tensor.type = row->type;
  const auto file = files.find(fmt::format("data/{}", pickled.storage));
  if (file == files.end())
    return invalid_argument("tensor '{}': storage data/{} is missing", name,
                            pickled.storage.substr(0, 40));
  uint64_t bytes = row->bytes, begin = 0, end = 0;
  bool overflow = false;
  for (const int64_t size : pickled.shape)
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes);
  overflow |= __builtin_mul_overflow(row->bytes, static_cast<uint64_t>(pickled.offset), &begin);
  overflow |= __builtin_add_overflow(begin, bytes, &end);
  if (overflow || end > file->second.size())
    return invalid_argument(
        "tensor '{}': {} of shape {} at element {} is more than data/{} has, "
        "{} bytes",
        name, tensor.dtype, tensor.shape_text(), pickled.offset, pickled.storage.substr(0, 40),
        file->second.size());
  if (!is_contiguous(pickled))
    return invalid_argument("tensor '{}': is a view with strides; save it contiguous", name);
  tensor.data = file->second.subspan(begin, bytes);
  return tensor;
}

}  // namespace

StatusOr<std::vector<StoredTensor>> parse_torch_file(std::span<const std::byte> file,
                                                     std::span<const std::byte>* header) {
  StatusOr<std::vector<ZipEntry>> entries = parse_zip(file);
  if (!entries.ok())
    return invalid_argument("{} (files of PyTorch before 1.6 are not supported: save them again)",
                            message(entries.status()));
  Files files;
  for (const ZipEntry& entry : *entries) {
    const size_t slash = entry.name.find('/');
    if (slash == entry.name.npos) continue;
    if (!files.emplace(entry.name.substr(slash + 1), entry.data).second)
      return invalid_argument("zip file '{}' is there twice", entry.name.substr(0, 200));
  }
  const auto pickle = files.find("data.pkl"), order = files.find("byteorder");
  if (pickle == files.end()) return invalid_argument("data.pkl is missing");
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  if (order != files.end() && text(order->second) != "little")
    return invalid_argument("byteorder: '{}' is not little", text(order->second).substr(0, 20));
  ASSIGN_OR_RETURN(const PickledFile pickled, parse_pickled_file(pickle->second));
  std::set<std::string> seen;
  std::vector<StoredTensor> tensors;
  for (const PickledTensor& tensor : pickled.tensors) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), place(tensor, files));
    if (const std::string& name = tensors.back().name; !seen.insert(name).second)
      return invalid_argument("tensor '{}' is there twice", name.substr(0, 200));
  }
  if (header) *header = pickle->second;
  return tensors;
}

}  // namespace nereid::io
