#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/json.h"

namespace nereid::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

constexpr uint64_t kMaxTensors = 1'000'000;
constexpr size_t kMaxDims = 8;

struct DTypeRow {
  std::string_view name;
  uint64_t bytes;
  std::optional<DType> type;
};
constexpr std::array<DTypeRow, 16> kDTypes = {{{"F64", 8, std::nullopt},
                                               {"F32", 4, DType::kF32},
                                               {"F16", 2, DType::kF16},
                                               {"BF16", 2, DType::kBF16},
                                               {"I64", 8, DType::kI64},
                                               {"I32", 4, DType::kI32},
                                               {"I16", 2, std::nullopt},
                                               {"I8", 1, DType::kI8},
                                               {"U64", 8, std::nullopt},
                                               {"U32", 4, std::nullopt},
                                               {"U16", 2, std::nullopt},
                                               {"U8", 1, DType::kU8},
                                               {"BOOL", 1, std::nullopt},
                                               {"F8_E4M3", 1, DType::kF8E4M3},
                                               {"F8_E5M2", 1, std::nullopt},
                                               {"F8_E8M0", 1, DType::kU8}}};

const DTypeRow* find_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return &row;
  return nullptr;
}

// A non-negative integer; other numbers are refused.
std::optional<uint64_t> to_count(const json::value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  return std::nullopt;
}

StatusOr<StoredTensor> parse_shape_and_type(std::string_view name, const json::object& fields,
                                            uint64_t* bytes) {
  StoredTensor tensor;
  tensor.name = name;
  const json::value* dtype = fields.if_contains("dtype");
  if (!dtype || !dtype->is_string())
    return invalid_argument("tensor '{}': field 'dtype' is not a string", name);
  const DTypeRow* row = find_dtype(dtype->get_string());
  if (!row)
    return invalid_argument("tensor '{}': dtype '{}' is not known", name,
                            std::string_view(dtype->get_string()).substr(0, 32));
  tensor.dtype = row->name;
  tensor.type = row->type;
  const json::value* shape = fields.if_contains("shape");
  if (!shape || !shape->is_array())
    return invalid_argument("tensor '{}': field 'shape' is not an array", name);
  if (shape->get_array().size() > kMaxDims)
    return invalid_argument("tensor '{}': {} dimensions, at most {} are allowed", name,
                            shape->get_array().size(), kMaxDims);
  *bytes = row->bytes;
  for (const json::value& item : shape->get_array()) {
    const std::optional<uint64_t> dim = to_count(item);
    if (!dim || *dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return invalid_argument("tensor '{}': shape has a value that is not a size", name);
    if (__builtin_mul_overflow(*bytes, *dim, bytes))
      return invalid_argument("tensor '{}': shape is too large", name);
    tensor.shape.push_back(static_cast<int64_t>(*dim));
  }
  return tensor;
}

StatusOr<StoredTensor> parse_tensor(std::string_view name, const json::value& value,
                                    std::span<const std::byte> data) {
  if (!value.is_object()) return invalid_argument("tensor '{}': entry is not an object", name);
  const json::object& fields = value.get_object();
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(StoredTensor tensor, parse_shape_and_type(name, fields, &bytes));
  const json::value* offsets = fields.if_contains("data_offsets");
  if (!offsets || !offsets->is_array() || offsets->get_array().size() != 2)
    return invalid_argument("tensor '{}': field 'data_offsets' is not [begin, end]", name);
  const std::optional<uint64_t> begin = to_count(offsets->get_array()[0]);
  const std::optional<uint64_t> end = to_count(offsets->get_array()[1]);
  if (!begin || !end || *begin > *end)
    return invalid_argument("tensor '{}': field 'data_offsets' is not [begin, end]", name);
  if (*end > data.size())
    return invalid_argument("tensor '{}': ends at byte {} of the data, the file has {}", name, *end,
                            data.size());
  if (*end - *begin != bytes)
    return invalid_argument("tensor '{}': {} {} needs {} bytes, data_offsets give {}", name,
                            tensor.dtype, tensor.shape_text(), bytes, *end - *begin);
  tensor.data = data.subspan(*begin, bytes);
  return tensor;
}

// Overlaps and holes are errors.
Status check_coverage(const std::vector<StoredTensor>& tensors, std::span<const std::byte> data) {
  const std::byte* expected = data.data();
  const StoredTensor* previous = nullptr;
  for (const StoredTensor& tensor : tensors) {
    const int64_t gap = tensor.data.data() - expected;
    if (gap < 0)
      return invalid_argument("tensor '{}' overlaps tensor '{}'", tensor.name,
                              previous ? previous->name : tensor.name);
    if (gap > 0)
      return invalid_argument("{} bytes before tensor '{}' belong to no tensor", gap, tensor.name);
    expected += tensor.data.size();
    previous = &tensor;
  }
  if (expected != data.data() + data.size())
    return invalid_argument("{} bytes at the end of the file belong to no tensor",
                            data.data() + data.size() - expected);
  return ok();
}

StatusOr<uint64_t> header_bytes(std::span<const std::byte> file) {
  if (file.size() < 8)
    return invalid_argument("{} bytes are too few for a safetensors file", file.size());
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMaxSafetensorsHeaderBytes)
    return invalid_argument("header of {} bytes, at most {} are allowed", length,
                            kMaxSafetensorsHeaderBytes);
  if (length > file.size() - 8)
    return invalid_argument("header of {} bytes does not fit in a file of {} bytes", length,
                            file.size());
  return length;
}

StatusOr<std::optional<int32_t>> rank_of(const json::value& metadata) {
  const json::object* fields = metadata.if_object();
  const json::value* value = fields ? fields->if_contains(kRankMetadata) : nullptr;
  if (!value) return std::optional<int32_t>();
  const std::string_view text = value->is_string() ? std::string_view(value->get_string()) : "";
  int32_t rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0)
    return invalid_argument("__metadata__: {} is no rank", kRankMetadata);
  return std::optional(rank);
}

}  // namespace

StatusOr<std::vector<StoredTensor>> parse_safetensors(std::span<const std::byte> file,
                                                      std::optional<int32_t>* rank) {
  ASSIGN_OR_RETURN(const uint64_t length, header_bytes(file));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  StatusOr<json::value> header = parse_json(text, 8);
  if (!header.ok()) return annotate(header.status(), "header");
  if (!header->is_object()) return invalid_argument("header is not a JSON object");
  if (header->get_object().size() > kMaxTensors)
    return invalid_argument("more than {} tensors", kMaxTensors);
  const std::span<const std::byte> data = file.subspan(8 + length);
  std::vector<StoredTensor> tensors;
  for (const auto& [key, value] : header->get_object()) {
    if (key == "__metadata__") {
      if (rank) {
        ASSIGN_OR_RETURN(*rank, rank_of(value));
      }
      continue;
    }
    ASSIGN_OR_RETURN(StoredTensor tensor, parse_tensor(key, value, data));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  RETURN_IF_ERROR(check_coverage(tensors, data));
  return tensors;
}

std::string serialize_safetensors(std::span<const StoredTensor> tensors) {
  json::object header;
  uint64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    json::object& fields = header[tensor.name].emplace_object();
    fields["dtype"] = tensor.dtype;
    fields["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
    fields["data_offsets"] = {offset, offset + tensor.data.size()};
    offset += tensor.data.size();
  }
  std::string text = json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  out += text;
  for (const StoredTensor& tensor : tensors)
    out.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  return out;
}

StatusOr<std::span<const std::byte>> safetensors_header(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const uint64_t length, header_bytes(file));
  return file.first(8 + length);
}

}  // namespace nereid::io
