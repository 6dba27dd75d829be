// GGUF files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace nereid::testing_only {

struct GgufBlob {
  std::string name;
  uint32_t type = 0;
  std::vector<int64_t> shape;  // outermost first
  std::string bytes;
};

inline std::string gguf_number(uint64_t value, size_t bytes) {
  return std::string(reinterpret_cast<const char*>(&value), bytes);
}
inline std::string gguf_text(std::string_view text) {
  return gguf_number(text.size(), 8) + std::string(text);
}

// A value, after its type: unsigned integers as u32, signed ones as i32, doubles as f32.
inline std::string gguf_value(const json::value& value, bool with_type = true) {
  const auto typed = [&](uint32_t type, const std::string& bytes) {
    return with_type ? gguf_number(type, 4) + bytes : bytes;
  };
  if (value.is_string()) return typed(8, gguf_text(value.get_string()));
  if (value.is_bool()) return typed(7, gguf_number(value.get_bool(), 1));
  if (value.is_uint64()) return typed(4, gguf_number(value.get_uint64(), 4));
  if (value.is_int64()) return typed(5, gguf_number(static_cast<uint64_t>(value.get_int64()), 4));
  if (value.is_double()) {
    const auto number = static_cast<float>(value.get_double());
    return typed(6, std::string(reinterpret_cast<const char*>(&number), 4));
  }
  std::string items;
  for (const json::value& item : value.get_array()) items += gguf_value(item, false);
  return gguf_number(9, 4) + gguf_value(value.get_array()[0]).substr(0, 4) +
         gguf_number(value.get_array().size(), 8) + items;
}

inline std::string gguf_file(const json::object& metadata, const std::vector<GgufBlob>& tensors) {
  std::string out =
      "GGUF" + gguf_number(3, 4) + gguf_number(tensors.size(), 8) + gguf_number(metadata.size(), 8);
  for (const auto& [key, value] : metadata) out += gguf_text(key) + gguf_value(value);
  std::string data;
  for (const GgufBlob& tensor : tensors) {
    out += gguf_text(tensor.name) + gguf_number(tensor.shape.size(), 4);
    for (size_t i = tensor.shape.size(); i-- > 0;)
      out += gguf_number(static_cast<uint64_t>(tensor.shape[i]), 8);
    out += gguf_number(tensor.type, 4) + gguf_number(data.size(), 8);
    data += tensor.bytes;
    data.resize((data.size() + 31) / 32 * 32);
  }
  out.resize((out.size() + 31) / 32 * 32);
  return out + data;
}

}  // namespace nereid::testing_only
