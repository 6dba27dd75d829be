#include "convert/rank_writer.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "convert/quantize/rank_rounding.h"
#include "convert/weight_source.h"

namespace nereid::convert {
namespace {

constexpr int64_t kCopyElements = int64_t{1} << 20;

}  // namespace

Status RankWriter::write(const std::vector<models::RankTensor>& tensors,
                         const std::filesystem::path& path) {
  std::vector<io::TensorInfo> infos;
  for (const models::RankTensor& tensor : tensors) {
    ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> parts, format_.infos(tensor));
    infos.insert(infos.end(), parts.begin(), parts.end());
  }
  ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
                   io::SafetensorsWriter::create(path, infos, progress_.rank));
  for (const models::RankTensor& tensor : tensors) RETURN_IF_ERROR(write(tensor, writer));
  return writer.finish();
}

Status RankWriter::write(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
  const auto append_bytes = [&](std::span<const std::byte> bytes) { return append(bytes, writer); };
  scales_.clear();
  switch (format_.use_of(tensor)) {
    case RankFormat::Use::kFloats:
      RETURN_IF_ERROR(write_floats(tensor, writer));
      break;
    case RankFormat::Use::kRounded:
      RETURN_IF_ERROR(write_rounded(tensor, writer));
      break;
    case RankFormat::Use::kTaken:
      RETURN_IF_ERROR(format_.append_codes(tensor, append_bytes));
  }
  ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> infos, format_.infos(tensor));
  for (const io::TensorInfo& info : std::span(infos).subspan(1)) {
    ASSIGN_OR_RETURN(values_, format_.numbers(tensor, info, scales_));
    bytes_.resize(values_.size() * size_of(info.type));
    if (const size_t bad = convert(info.type); bad != values_.size())
      return invalid_argument("tensor '{}': element {} is {}, which does not fit in {}", info.name,
                              bad, values_[bad], nereid::name_of(info.type));
    RETURN_IF_ERROR(append(bytes_, writer));
  }
  for (const models::RankBlock& block : tensor.blocks)
    if (block.weight != graph::kNone) forget(graph_.weights[block.weight]);
  return ok();
}

Status RankWriter::write_floats(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
  const DType type = type_of(tensor);
  uint64_t missing = io::TensorInfo{tensor.name, type, tensor.shape}.bytes();
  for (const models::RankBlock& block : tensor.blocks) {
    const uint64_t bytes = static_cast<uint64_t>(block.rows * block.cols) * size_of(type);
    RETURN_IF_ERROR(block.weight == graph::kNone ? write_zeros(bytes, writer)
                    : block.transposed           ? write_transposed(block, type, writer)
                                                 : write_block(block, type, writer));
    missing -= bytes;
  }
  return write_zeros(missing, writer);
}

Status RankWriter::write_rounded(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
  const int64_t k = tensor.shape[1], chunk = std::max<int64_t>(2, kCopyElements / k / 2 * 2);
  std::vector<float> rows;
  std::vector<std::byte> codes;
  const auto round = [&](bool is_last) -> Status {
    const auto whole = static_cast<size_t>(k) * 2;
    const size_t count = is_last ? rows.size() : rows.size() / whole * whole;
    codes.clear();
    round_rows(format_.rounding(), to_, std::span(rows).first(count), k, codes, scales_);
    rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
    return append(codes, writer);
  };
  for (const models::RankBlock& block : tensor.blocks)
    for (int64_t row = 0; row < block.rows; row += chunk) {
      RETURN_IF_ERROR(read_block(block, row, std::min(chunk, block.rows - row)));
      rows.insert(rows.end(), values_.begin(), values_.end());
      RETURN_IF_ERROR(round(false));
      forget(graph_.weights[block.weight]);
    }
  return round(true);
}

Status RankWriter::read_block(const models::RankBlock& block, int64_t row, int64_t rows) {
  const graph::Weight& weight = graph_.weights[block.weight];
  const int64_t k = weight.is_vector ? 1 : weight.k;
  values_.resize(static_cast<size_t>(rows * block.cols));
  const int64_t first = (block.row + row) * k + block.col;
  const std::span<float> values(values_);
  if (block.cols == k) return read_values(weight, checkpoint_, first, values);
  for (int64_t i = 0; i < rows; ++i)
    RETURN_IF_ERROR(read_values(
        weight, checkpoint_, first + i * k,
        values.subspan(static_cast<size_t>(i * block.cols), static_cast<size_t>(block.cols))));
  return ok();
}

void RankWriter::forget(const graph::Weight& weight) {
  for (const graph::WeightPart& part : weight.parts)
    if (part.sinusoids == graph::Sinusoids::kNone)
      forget_pages(checkpoint_.find(part.tensor)->tensor->data);
}

Status RankWriter::write_block(const models::RankBlock& block, DType type,
                               io::SafetensorsWriter& writer) {
  const graph::Weight& weight = graph_.weights[block.weight];
  const int64_t k = weight.is_vector ? 1 : weight.k;
  const int64_t chunk = std::max<int64_t>(1, kCopyElements / block.cols);
  for (int64_t row = 0; row < block.rows; row += chunk) {
    const int64_t rows = std::min(chunk, block.rows - row);
    RETURN_IF_ERROR(read_block(block, row, rows));
    const int64_t first = (block.row + row) * k + block.col;
    bytes_.resize(values_.size() * size_of(type));
    if (const size_t bad = convert(type); bad != values_.size())
      return refuse(weight, first / k + static_cast<int64_t>(bad) / block.cols,
                    block.col + static_cast<int64_t>(bad) % block.cols, values_[bad], type);
    RETURN_IF_ERROR(append(bytes_, writer));
    forget(weight);
  }
  return ok();
}

Status RankWriter::write_transposed(const models::RankBlock& block, DType type,
                                    io::SafetensorsWriter& writer) {
  RETURN_IF_ERROR(read_block(block, 0, block.rows));
  const std::vector<float> read = values_;
  for (int64_t row = 0; row < block.rows; ++row)
    for (int64_t col = 0; col < block.cols; ++col)
      values_[static_cast<size_t>(col * block.rows + row)] =
          read[static_cast<size_t>(row * block.cols + col)];
  bytes_.resize(values_.size() * size_of(type));
  if (const size_t bad = convert(type); bad != values_.size()) {
    const auto at = static_cast<int64_t>(bad);
    return refuse(graph_.weights[block.weight], block.row + at % block.rows, at / block.rows,
                  values_[bad], type);
  }
  return append(bytes_, writer);
}

Status RankWriter::write_zeros(uint64_t bytes, io::SafetensorsWriter& writer) {
  bytes_.assign(std::min<uint64_t>(bytes, kCopyElements), std::byte{0});
  for (; bytes > 0; bytes -= bytes_.size()) {
    bytes_.resize(std::min<uint64_t>(bytes, bytes_.size()));
    RETURN_IF_ERROR(append(bytes_, writer));
  }
  return ok();
}

Status RankWriter::append(std::span<const std::byte> bytes, io::SafetensorsWriter& writer) {
  RETURN_IF_ERROR(writer.append(bytes));
  progress_.bytes += bytes.size();
  if (report_) report_(progress_);
  return ok();
}

size_t RankWriter::convert(DType type) {
  for (size_t i = 0; i < values_.size(); ++i)
    if (!store_as(type, values_[i], bytes_.data() + i * size_of(type))) return i;
  return values_.size();
}

Status RankWriter::refuse(const graph::Weight& weight, int64_t row, int64_t col, float value,
                          DType type) const {
  const graph::WeightPart* found = &weight.parts[0];
  const int64_t k = weight.is_vector ? 1 : weight.k;
  int64_t begin = 0, at = 0;
  for (const graph::WeightPart& part : weight.parts) {
    if (begin <= row) found = &part, at = begin;
    if (part.width(k) == k) begin += part.size;
  }
  return invalid_argument("{}: tensor '{}': element {} is {}, which is out of {}'s range{}",
                          checkpoint_.find(found->tensor)->file->path().string(), found->tensor,
                          (row - at) * k + col, value, nereid::name_of(type),
                          type == DType::kF16 ? "; choose dtype bfloat16" : "");
}

}  // namespace nereid::convert
