#include "runtime/adapters/base_weights.h"

#include <cmath>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/round_up.h"
#include "io/numbers.h"
#include "kernels/api/pack.h"

namespace nereid::runtime {
namespace {

// Dequantises a row; bf16, the most common type, without a call per number.
void read_row(const kernels::WeightView& weight, int64_t row, std::span<float> out) {
  const bool is_panel = weight.layout == kernels::WeightLayout::kPanel16;
  if (!weight.format.is_float()) {
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = kernels::weight_at(weight, row, static_cast<int64_t>(c));
  } else if (is_panel) {
    const BF16* const panel = weight.as_bf16() + kernels::panel_index(row, 0, weight.k);
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = to_float(panel[c / 2 * (2 * kernels::kPanelRows) + c % 2]);
  } else {
    for (size_t c = 0; c < out.size(); ++c)
      out[c] = to_float(weight.as_bf16()[static_cast<size_t>(row) * out.size() + c]);
  }
}

// row[i] += sum over j of factors[j] * a[j * stride + i], in order of j; 0 <= i < kBlock.
constexpr size_t kBlock = 16;
void add_block(float* row, std::span<const float> factors, const float* a, size_t stride) {
  float sums[kBlock];
  for (size_t i = 0; i < kBlock; ++i) sums[i] = row[i];
  for (const float factor : factors) {
    for (size_t i = 0; i < kBlock; ++i) sums[i] += factor * a[i];
    a += stride;
  }
  for (size_t i = 0; i < kBlock; ++i) row[i] = sums[i];
}

}  // namespace

StatusOr<std::shared_ptr<const BaseWeights>> BaseWeights::open(
    const std::filesystem::path& engine) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  return std::shared_ptr<const BaseWeights>(new BaseWeights(std::move(file)));
}

// A module's product is the one whose result its low_rank call changes.
BaseWeights::BaseWeights(io::EngineFile file) : file_(std::move(file)) {
  const io::Plan& plan = file_.plan();
  parts_.resize(plan.modules.size());
  for (const io::Call& call : plan.calls) {
    const auto* const low_rank = std::get_if<kernels::ids::LowRank>(&call.op);
    if (!low_rank) continue;
    for (const io::Call& other : plan.calls) {
      const auto* const embed = std::get_if<kernels::ids::Embed>(&other.op);
      if (embed && embed->out == low_rank->y)
        parts_[static_cast<size_t>(low_rank->first_module)] = {embed->table, io::kNone, true};
      const auto* const linear = std::get_if<kernels::ids::Linear>(&other.op);
      if (!linear || linear->out != low_rank->y) continue;
      for (int32_t i = 0; i < low_rank->num_modules; ++i)
        parts_[static_cast<size_t>(low_rank->first_module + i)] = {linear->weight, linear->bias};
    }
  }
}

bool BaseWeights::is_product(int32_t module) const {
  const Part& part = parts_[static_cast<size_t>(module)];
  return part.weight != io::kNone && !part.is_embedding;
}

bool BaseWeights::equals(int32_t module, const io::StoredTensor& tensor) const {
  const io::AdapterModule& m = file_.plan().modules[static_cast<size_t>(module)];
  const Part& part = parts_[static_cast<size_t>(module)];
  const int64_t rows = m.of_tokens ? m.k : m.num_source_rows(), cols = m.of_tokens ? m.n : m.k;
  if (part.weight == io::kNone || tensor.shape != std::vector{rows, cols}) return false;
  const kernels::WeightView weight = file_.weight(part.weight);
  std::vector<float> own(static_cast<size_t>(cols));
  io::StoredTensor row = tensor;
  const size_t bytes = tensor.data.size() / static_cast<size_t>(rows);
  const auto is_row = [&](int64_t n, int64_t from) {
    row.data = tensor.data.subspan(static_cast<size_t>(from) * bytes, bytes);
    const auto given = io::numbers_of(row);
    if (!given.ok()) return false;
    read_row(weight, m.column + n, own);
    for (size_t c = 0; c < own.size(); ++c)
      if (to_float(to_bf16((*given)[c])) != own[c]) return false;
    return true;
  };
  bool is_equal = true;
  for (int64_t n = 0; m.of_tokens && is_equal && n < rows; ++n) is_equal = is_row(n, n);
  if (!m.of_tokens)
    m.for_rows([&](int64_t n, int64_t from) { is_equal = is_equal && is_row(n, from); });
  return is_equal;
}

std::vector<float> BaseWeights::bias(int32_t module) const {
  const io::AdapterModule& m = file_.plan().modules[static_cast<size_t>(module)];
  const io::WeightId id = parts_[static_cast<size_t>(module)].bias;
  std::vector<float> bias;
  for (int64_t n = 0; id != io::kNone && n < m.n; ++n)
    bias.push_back(kernels::weight_at(file_.weight(id), 0, m.column + n));
  return bias;
}

std::vector<float> BaseWeights::row_lengths(const ChangedWeight& changed) const {
  const io::AdapterModule& m = file_.plan().modules[static_cast<size_t>(changed.module)];
  const kernels::WeightView weight =
      file_.weight(parts_[static_cast<size_t>(changed.module)].weight);
  const auto k = static_cast<size_t>(m.k), rank = changed.a.size() / k;
  NEREID_CHECK(changed.b.size() == rank * static_cast<size_t>(m.n));
  const size_t stride = round_up(k, kBlock);
  std::vector<float> a(rank * stride), row(stride), factors(rank), lengths;
  for (size_t j = 0; j < rank; ++j)
    for (size_t c = 0; c < k; ++c) a[j * stride + c] = to_float(changed.a[j * k + c]);
  for (int64_t n = 0; n < m.n; ++n) {
    read_row(weight, m.column + n, std::span(row).first(k));
    for (size_t j = 0; j < rank; ++j)
      factors[j] = changed.scale * to_float(changed.b[static_cast<size_t>(n) * rank + j]);
    for (size_t c = 0; c < stride; c += kBlock) add_block(&row[c], factors, &a[c], stride);
    double sum = 0;
    for (const float x : std::span(row).first(k)) sum += double{x} * x;
    lengths.push_back(static_cast<float>(std::sqrt(sum)));
  }
  return lengths;
}

}  // namespace nereid::runtime
