// Kernel tuning table: measured algorithms of a product library, stored in the engine so that all
// its runs give the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace nereid::kernels {

// Algorithm for products with a weight [n, k] and up to `rows` rows of x, above the entry before.
struct ProductChoice {
  int64_t n = 0, k = 0;
  DType x = DType::kBF16, out = DType::kBF16;
  int64_t rows = 0;
  std::vector<int32_t> algorithm;  // the library's identification; empty: its first choice
};

struct AlgorithmChoices {
  std::string library;  // with version; empty: not measured
  std::string device;   // DeviceInfo::name
  std::vector<ProductChoice> products;
};

}  // namespace nereid::kernels
