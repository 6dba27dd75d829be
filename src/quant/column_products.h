// Products of the columns of a matrix with one another, by the device's own matrix product.
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
  // Of a device whose memory the host can read; both outlive it.
  static StatusOr<std::unique_ptr<ColumnProducts>> create(const kernels::Registry& registry,
                                                          Device& device);

  // sums += y^T x of bf16 rows y [rows, n] and x [rows, k]; sums: f32 [n, k]. May be called from
  // work on another stream of the device. Errors of the device.
  Status add(const View& y, const View& x, std::span<float> sums);

 private:
  ColumnProducts(const kernels::Registry& registry, Device& device)
      : registry_(registry), device_(device) {}

  // Into columns_, [cols, width].
  Status copy_columns(const View& x, int64_t width);

  const kernels::Registry& registry_;
  Device& device_;
  Buffer columns_, packed_, out_;   // of the last call, used again by one of that size
  std::unique_ptr<Stream> stream_;  // last: its work uses everything above
};

}  // namespace nereid::quant
