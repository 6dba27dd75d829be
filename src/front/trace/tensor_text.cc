#include "front/trace/tensor_text.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "front/bridge/number_types.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxElements = 1 << 20;

template <class T, class Show>
std::string list(const void* base, size_t byte_size, Show show) {
  const size_t count = byte_size / sizeof(T);
  std::string out;
  for (size_t i = 0; i < std::min(count, kMaxElements); ++i) {
    if (i > 0) out += ',';
    show(out, element_at<T>(base, i));
  }
  if (count > kMaxElements) out += ",...";
  return out;
}

template <class T>
std::string numbers(const void* base, size_t byte_size) {
  return list<T>(base, byte_size, [](std::string& out, T value) {
    if constexpr (std::is_floating_point_v<T>) {
      fmt::format_to(std::back_inserter(out), "{:g}", value);
    } else {
      fmt::format_to(std::back_inserter(out), "{}", static_cast<std::common_type_t<T, int>>(value));
    }
  });
}

float from_half(uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const float sign = (h & 0x8000) != 0 ? -1.f : 1.f;
  const auto fraction = static_cast<float>(h & 1023);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

std::string strings(const void* base, size_t byte_size) {
  const char* at = static_cast<const char*>(base);
  std::string out;
  for (size_t i = 0; byte_size > 0; ++i) {
    if (i > 0) out += ',';
    const uint32_t length = byte_size < 4 ? UINT32_MAX : element_at<uint32_t>(at, 0);
    if (i == kMaxElements || byte_size < 4 || length > byte_size - 4) return out + "...";
    out += '"';
    out.append(at + 4, length);
    out += '"';
    at += 4 + length;
    byte_size -= 4 + length;
  }
  return out;
}

}  // namespace

std::string tensor_text(TRITONSERVER_DataType type, const void* base, size_t byte_size) {
  if (base == nullptr) return "";
  std::string text;
  if (visit_number_type(type, [&]<class T>(T) { text = numbers<T>(base, byte_size); })) return text;
  switch (type) {
    case TRITONSERVER_TYPE_BOOL:
      return numbers<uint8_t>(base, byte_size);
    case TRITONSERVER_TYPE_FP16:
      return list<uint16_t>(base, byte_size, [](std::string& out, uint16_t h) {
        fmt::format_to(std::back_inserter(out), "{:g}", from_half(h));
      });
    case TRITONSERVER_TYPE_BF16:
      return list<uint16_t>(base, byte_size, [](std::string& out, uint16_t h) {
        fmt::format_to(std::back_inserter(out), "{:g}",
                       std::bit_cast<float>(static_cast<uint32_t>(h) << 16));
      });
    case TRITONSERVER_TYPE_BYTES:
      return strings(base, byte_size);
    default:
      return "";
  }
}

}  // namespace nereid::front
