// Which of the algorithms that a library of products offers is taken: measured when an engine is
// built and kept in it, so that every run of the engine gives the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace nereid::kernels {

// Of products of up to `rows` rows of x, more than the next smaller choice of the same product is
// for, by a weight [n, k].
struct ProductChoice {
  int64_t n = 0, k = 0;
  DType x = DType::kBF16, out = DType::kBF16;
  int64_t rows = 0;
  std::vector<int32_t> algorithm;  // the numbers that the library knows it by; empty: its first
};

struct ProductChoices {
  std::string library;  // with its version; empty: nothing was measured
  std::string device;   // DeviceInfo::name
  std::vector<ProductChoice> products;
};

}  // namespace nereid::kernels
