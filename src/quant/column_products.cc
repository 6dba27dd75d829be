#include "quant/column_products.h"

#include <algorithm>

#include "kernels/api/pack.h"

namespace nereid::quant {
namespace {

constexpr int64_t kSumRowsTogether = 256;  // rows of `sums` computed at a time

Status resize(Device& device, size_t bytes, Buffer& buffer) {
  if (buffer.size() == bytes) return ok();
  ASSIGN_OR_RETURN(buffer, device.allocate(bytes));
  return ok();
}

}  // namespace

StatusOr<std::unique_ptr<ColumnProducts>> ColumnProducts::create(const kernels::Registry& registry,
                                                                 Device& device) {
  std::unique_ptr<ColumnProducts> out(new ColumnProducts(registry, device));
  ASSIGN_OR_RETURN(out->stream_, device.create_stream());
  return out;
}

Status ColumnProducts::copy_columns(const View& x, int64_t width) {
  RETURN_IF_ERROR(resize(device_, static_cast<size_t>(x.cols * width) * sizeof(BF16), columns_));
  auto* const columns = static_cast<BF16*>(columns_.data());
  std::fill_n(columns_.bytes(), columns_.size(), std::byte{0});
  for (int64_t row = 0; row < x.rows; ++row) {
    const auto* const from = static_cast<const BF16*>(x.data) + row * x.stride;
    for (int64_t col = 0; col < x.cols; ++col) columns[col * width + row] = from[col];
  }
  return ok();
}

// Computes y^T x by a matrix product with transposed copies of y and x.
Status ColumnProducts::add(const View& y, const View& x, std::span<float> sums) {
  const int64_t n = y.cols, k = x.cols, width = kernels::padded_k(x.rows);
  RETURN_IF_ERROR(copy_columns(x, width));
  RETURN_IF_ERROR(resize(device_, kernels::panel16_bytes(k, width), packed_));
  const kernels::RowMajorPart part{columns_.data(), k};
  RETURN_IF_ERROR(kernels::pack_panel16({&part, 1}, width, {packed_.bytes(), packed_.size()}));
  if (y.data != x.data) RETURN_IF_ERROR(copy_columns(y, width));
  const int64_t most = std::min(n, kSumRowsTogether);
  RETURN_IF_ERROR(resize(device_, static_cast<size_t>(most * k) * sizeof(float), out_));
  auto* const columns = static_cast<BF16*>(columns_.data());
  for (int64_t first = 0; first < n; first += most) {
    const int64_t rows = std::min(most, n - first);
    kernels::Linear product;
    product.x = View::matrix(columns + first * width, DType::kBF16, rows, width);
    product.weight = {packed_.data(), kernels::WeightLayout::kPanel16, k, width};
    product.out = View::matrix(out_.data(), DType::kF32, rows, k);
    ASSIGN_OR_RETURN(const kernels::Kernel<kernels::Linear>* const kernel,
                     kernels::select(registry_.table<kernels::Linear>(), product, device_.info()));
    ASSIGN_OR_RETURN(const auto event,
                     stream_->submit([&](Stream& stream) { return kernel->run(product, stream); }));
    RETURN_IF_ERROR(event->wait());
    const auto* const out = static_cast<const float*>(out_.data());
    for (int64_t i = 0; i < rows * k; ++i) sums[static_cast<size_t>(first * k + i)] += out[i];
  }
  return ok();
}

}  // namespace nereid::quant
