// Products of a matrix's columns (y^T x), by the device's matrix product.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace nereid::quant {

class ColumnProducts {
 public:
  // The device's memory must be host-readable; arguments must outlive this.
  static StatusOr<std::unique_ptr<ColumnProducts>> create(const kernels::Registry& registry,
                                                          Device& device);

  // sums += y^T x; y: bf16 [rows, n], x: bf16 [rows, k], sums: f32 [n, k]. May be called from work
  // on another stream of the device. Errors of the device.
  Status add(const View& y, const View& x, std::span<float> sums);

 private:
  ColumnProducts(const kernels::Registry& registry, Device& device)
      : registry_(registry), device_(device) {}

  // Transposes x into columns_, [cols, width].
  Status copy_columns(const View& x, int64_t width);

  const kernels::Registry& registry_;
  Device& device_;
  Buffer columns_, packed_, out_;   // reused by calls of the same size
  std::unique_ptr<Stream> stream_;  // last member: its work uses the others
};

}  // namespace nereid::quant
