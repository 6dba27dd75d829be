// For fuzz targets: numbers at the ends of an encoded matrix.
#pragma once

#include <array>

#include "io/checkpoint.h"

inline void read_corners(const nereid::io::StoredTensor& tensor) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  const int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  std::array<float, 1> number;
  for (const int64_t row : {int64_t{0}, rows - 1})
    for (const int64_t col : {int64_t{0}, cols - 1}) {
      tensor.encoding->read(row, col, 0, 1, number);
      if (const auto format = tensor.encoding->format()) {
        (void)tensor.encoding->code(row, col);
        (void)tensor.encoding->group(row, col / format->group_size(cols));
      }
    }
}
