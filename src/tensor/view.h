// A matrix in device memory, not owned: kernel argument.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"

namespace nereid {

struct View {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements between row starts

  static View matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
    return {data, dtype, rows, cols, cols};
  }

  template <class T>
  T* as() const {
    NEREID_DCHECK(sizeof(T) == size_of(dtype));
    return static_cast<T*>(data);
  }
  template <class T>
  T* row(int64_t i) const {
    return as<T>() + i * stride;
  }
};

}  // namespace nereid
