#include "io/gguf_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/gguf.h"
#include "io/ggml_blocks.h"

namespace nereid::io {
namespace {

// ggml type; `bytes` per element, 0: block format.
struct GgmlType {
  uint32_t id;
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> type;
};
constexpr GgmlType kGgmlTypes[] = {{0, "F32", 4, DType::kF32},
                                   {1, "F16", 2, DType::kF16},
                                   {2, "Q4_0", 0, {}},
                                   {3, "Q4_1", 0, {}},
                                   {6, "Q5_0", 0, {}},
                                   {7, "Q5_1", 0, {}},
                                   {8, "Q8_0", 0, {}},
                                   {9, "Q8_1", 0, {}},
                                   {10, "Q2_K", 0, {}},
                                   {11, "Q3_K", 0, {}},
                                   {12, "Q4_K", 0, {}},
                                   {13, "Q5_K", 0, {}},
                                   {14, "Q6_K", 0, {}},
                                   {15, "Q8_K", 0, {}},
                                   {16, "IQ2_XXS", 0, {}},
                                   {17, "IQ2_XS", 0, {}},
                                   {18, "IQ3_XXS", 0, {}},
                                   {19, "IQ1_S", 0, {}},
                                   {20, "IQ4_NL", 0, {}},
                                   {21, "IQ3_S", 0, {}},
                                   {22, "IQ2_S", 0, {}},
                                   {23, "IQ4_XS", 0, {}},
                                   {24, "I8", 1, DType::kI8},
                                   {25, "I16", 2, {}},
                                   {26, "I32", 4, DType::kI32},
                                   {27, "I64", 8, DType::kI64},
                                   {28, "F64", 8, {}},
                                   {29, "IQ1_M", 0, {}},
                                   {30, "BF16", 2, DType::kBF16},
                                   {34, "TQ1_0", 0, {}},
                                   {35, "TQ2_0", 0, {}},
                                   {39, "MXFP4", 0, {}},
                                   {40, "NVFP4", 0, {}}};

StatusOr<StoredTensor> place(const GgufTensor& row, std::span<const std::byte> data) {
  StoredTensor tensor;
  tensor.name = row.name;
  tensor.shape = row.shape;
  const auto* type = std::ranges::find(kGgmlTypes, row.type, &GgmlType::id);
  if (type == std::end(kGgmlTypes))
    return invalid_argument("tensor '{}': type {} is not known", row.name.substr(0, 200), row.type);
  tensor.dtype = type->name;
  tensor.type = type->type;
  // The last dimension is in blocks; unreadable types have 0 bytes.
  const GgmlBlock block =
      type->bytes > 0 ? GgmlBlock{1, static_cast<int64_t>(type->bytes)} : ggml_block(row.type);
  const int64_t cols = row.shape.empty() ? 1 : row.shape.back();
  if (block.numbers > 1 && cols % block.numbers != 0)
    return invalid_argument("tensor '{}': {} {} has rows that are no whole blocks of {}",
                            row.name.substr(0, 200), tensor.dtype, tensor.shape_text(),
                            block.numbers);
  auto bytes = static_cast<uint64_t>(block.bytes);
  bool overflow = row.offset > data.size();
  for (size_t i = 0; i < row.shape.size(); ++i) {
    const int64_t count =
        i + 1 < row.shape.size() ? row.shape[i] : cols / std::max<int64_t>(1, block.numbers);
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(count), &bytes);
  }
  if (overflow || bytes > data.size() - row.offset)
    return invalid_argument("tensor '{}': {} {} at byte {} of the data, the file has {}",
                            row.name.substr(0, 200), tensor.dtype, tensor.shape_text(), row.offset,
                            data.size());
  tensor.data = data.subspan(row.offset, bytes);
  if (type->bytes == 0 && block.numbers > 0)
    tensor.encoding = ggml_blocks(row.type, tensor.data, cols);
  return tensor;
}

}  // namespace

StatusOr<std::vector<StoredTensor>> parse_gguf_tensors(std::span<const std::byte> file,
                                                       std::span<const std::byte>* header) {
  ASSIGN_OR_RETURN(const Gguf gguf, parse_gguf(file));
  std::vector<StoredTensor> tensors;
  for (const GgufTensor& row : gguf.tensors) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), place(row, file.subspan(gguf.data_begin)));
  }
  std::stable_sort(
      tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
        return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
      });
  for (size_t i = 1; i < tensors.size(); ++i) {
    const StoredTensor& before = tensors[i - 1];
    if (before.data.data() + before.data.size() > tensors[i].data.data())
      return invalid_argument("tensor '{}' overlaps tensor '{}'", tensors[i].name.substr(0, 200),
                              before.name.substr(0, 200));
  }
  if (header) *header = file.first(gguf.data_begin);
  return tensors;
}

}  // namespace nereid::io
