// The C++ types of tensors' elements.
#pragma once

#include <cstdint>
#include <cstring>

#include "triton/core/tritonserver.h"

namespace nereid::front {

// Calls `visit` with a value of the elements' type. False: neither integers nor FP32 or FP64.
template <class Visit>
bool visit_number_type(TRITONSERVER_DataType type, Visit visit) {
  switch (type) {
    case TRITONSERVER_TYPE_UINT8:
      return visit(uint8_t()), true;
    case TRITONSERVER_TYPE_UINT16:
      return visit(uint16_t()), true;
    case TRITONSERVER_TYPE_UINT32:
      return visit(uint32_t()), true;
    case TRITONSERVER_TYPE_UINT64:
      return visit(uint64_t()), true;
    case TRITONSERVER_TYPE_INT8:
      return visit(int8_t()), true;
    case TRITONSERVER_TYPE_INT16:
      return visit(int16_t()), true;
    case TRITONSERVER_TYPE_INT32:
      return visit(int32_t()), true;
    case TRITONSERVER_TYPE_INT64:
      return visit(int64_t()), true;
    case TRITONSERVER_TYPE_FP32:
      return visit(float()), true;
    case TRITONSERVER_TYPE_FP64:
      return visit(double()), true;
    default:
      return false;
  }
}

// Element `i`, wherever it lies.
template <class T>
T element_at(const void* elements, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(elements) + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace nereid::front
