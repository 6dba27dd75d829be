#include "backend/common/float_tensors.h"

#include <cstring>
#include <type_traits>

#include "tensor/dtype.h"

namespace nereid::backend {
namespace {

template <class T>
void append_as_bf16(std::string_view bytes, std::vector<uint16_t>& out) {
  T value;
  out.reserve(bytes.size() / sizeof(T));
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if constexpr (std::is_same_v<T, BF16>)
      out.push_back(value.bits);
    else if constexpr (std::is_same_v<T, F16>)
      out.push_back(to_bf16(to_float(value)).bits);
    else
      out.push_back(to_bf16(value).bits);
  }
}

template <class Convert>
std::string converted(std::span<const float> values, Convert convert) {
  using Number = decltype(convert(0.0f));
  std::string out(values.size() * sizeof(Number), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const Number number = convert(values[i]);
    std::memcpy(out.data() + i * sizeof(Number), &number, sizeof(Number));
  }
  return out;
}

}  // namespace

StatusOr<std::vector<uint16_t>> read_bf16(std::string_view name, const InputView& view) {
  std::vector<uint16_t> rows;
  switch (view.datatype) {
    case TRITONSERVER_TYPE_BF16:
      append_as_bf16<BF16>(view.bytes, rows);
      return rows;
    case TRITONSERVER_TYPE_FP16:
      append_as_bf16<F16>(view.bytes, rows);
      return rows;
    case TRITONSERVER_TYPE_FP32:
      append_as_bf16<float>(view.bytes, rows);
      return rows;
    default:
      return invalid_argument("input '{}' is of type {}, expected FP16, BF16 or FP32", name,
                              TRITONSERVER_DataTypeString(view.datatype));
  }
}

StatusOr<std::string> float_bytes(std::string_view name, std::span<const float> values,
                                  TRITONSERVER_DataType type) {
  switch (type) {
    case TRITONSERVER_TYPE_FP32:
      return converted(values, [](float x) { return x; });
    case TRITONSERVER_TYPE_FP16:
      return converted(values, to_f16);
    case TRITONSERVER_TYPE_BF16:
      return converted(values, to_bf16);
    default:
      return unsupported("{} is {}, expected FP16, BF16 or FP32", name,
                         TRITONSERVER_DataTypeString(type));
  }
}

}  // namespace nereid::backend
