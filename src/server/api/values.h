// Small value objects of the C API: named parameters, JSON messages, buffer attributes.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "triton/core/tritonserver.h"

// A named value. The API returns it as a pointer: `pointer`.
struct TRITONSERVER_Parameter {
  struct Bytes {
    const void* base;
    uint64_t size;
  };
  std::string name;
  std::variant<std::string, int64_t, bool, double, Bytes> value;  // index == ParameterType

  TRITONSERVER_ParameterType type() const {
    return static_cast<TRITONSERVER_ParameterType>(value.index());
  }
  // STRING: the characters; BYTES: the bytes; else the address of the value. Lives as long as this.
  const void* pointer() const;
};

// A JSON document.
struct TRITONSERVER_Message {
  std::string text;
};

namespace nereid::server {
using CudaIpcHandle = std::array<char, 64>;
// Shape of a request's or response's tensor. A request has dozens, most of them of two dimensions.
using Shape = absl::InlinedVector<int64_t, 4>;
}  // namespace nereid::server

struct TRITONSERVER_BufferAttributes {
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  size_t byte_size = 0;
  std::optional<nereid::server::CudaIpcHandle> cuda_ipc_handle;
};
