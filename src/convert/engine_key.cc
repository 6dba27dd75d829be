#include "convert/engine_key.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "convert/content_key.h"
#include "io/engine_file.h"
#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"

namespace nereid::convert {
namespace {

// Increment when the bytes of converted weights change without a change in anything hashed below
// (decoding, merging or scaling of tensors). Else earlier releases' engines stay valid.
constexpr uint64_t kConversion = 1;

// The plan without checksums: model facts, values, kernels, weight layouts and places, device.
void add_plan(ContentKey& key, const io::Plan& plan) {
  for (const io::PlanWeight& w : plan.weights)
    NEREID_CHECK(std::ranges::all_of(w.planes, [](const io::Plane& p) { return !p.checksum; }));
  key.add("plan", json::serialize(io::plan_to_json(plan)));
}

// The parts of each weight.
void add_sources(ContentKey& key, const graph::Graph& graph) {
  for (const graph::Weight& weight : graph.weights) {
    key.add("weight", weight.is_vector);
    key.add("stored", weight.stored ? kernels::text_of(*weight.stored) : "");
    for (const graph::WeightPart& part : weight.parts) {
      key.add("from", part.tensor);
      for (const int64_t number :
           {part.size, part.first, part.total, part.first_col, part.total_cols, part.step,
            part.stacked, part.index, part.cols, part.pairs})
        key.add("slice", static_cast<uint64_t>(number));
      if (part.sinusoids != graph::Sinusoids::kNone)
        key.add("sinusoids", static_cast<uint64_t>(part.sinusoids));
      if (part.col_step != 1) key.add("col_step", static_cast<uint64_t>(part.col_step));
      for (const int32_t element : part.elements)
        key.add("element", static_cast<uint64_t>(element));
      if (!part.row_scales.empty()) key.add("row_scales", part.row_scales);
      key.add("transposed", part.transposed);
      key.add("unit_rows", part.unit_rows);
    }
  }
}

// Rounding and packing: the bytes of a small matrix in each of the plan's formats.
void add_packing(ContentKey& key, const io::Plan& plan) {
  constexpr int64_t kRows = kernels::kPanelRows + 1, kCols = kernels::kPanelStepK + 1;
  std::vector<BF16> matrix(static_cast<size_t>(kRows * kCols));
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = to_bf16(static_cast<float>(i));
  std::vector<BF16> small(matrix.begin(), matrix.begin() + kernels::kMxfp4.group);
  for (BF16& x : small) x = to_bf16(to_float(x) / 8);
  std::vector<std::byte> packed(kernels::panel16_bytes(kRows, kCols));
  const kernels::RowMajorPart whole{matrix.data(), kRows};
  NEREID_CHECK(kernels::pack_panel16({&whole, 1}, kCols, packed).ok());
  key.add("packing", std::span<const std::byte>(packed));
  std::vector<kernels::WeightFormat> done = {{}, kernels::kFloat32};
  for (const io::PlanWeight& w : plan.weights) {
    if (std::ranges::find(done, w.format) != done.end()) continue;
    done.push_back(w.format);
    kernels::QuantizedPlanes planes;
    // Whole groups: MXFP4 has no shorter one.
    const bool is_mxfp4 = w.format == kernels::kMxfp4;
    const auto numbers = std::span(is_mxfp4 ? small : matrix);
    const int64_t cols = is_mxfp4 ? kernels::kMxfp4.group : kCols;
    NEREID_CHECK(kernels::quantize(w.format, w.layout, numbers, cols, planes).ok());
    key.add("data", std::as_bytes(std::span(planes.data)));
    key.add("scales", std::as_bytes(std::span(planes.scales)));
    key.add("exponents", std::as_bytes(std::span(planes.exponents)));
    key.add("zeros", std::as_bytes(std::span(planes.zeros)));
    key.add("minima", std::as_bytes(std::span(planes.minima)));
  }
}

}  // namespace

std::string engine_key(const Compiled& compiled, const io::Checkpoint* checkpoint) {
  ContentKey key;
  key.add("format", io::kEngineFormatVersion);
  key.add("conversion", kConversion);
  add_plan(key, compiled.plan);
  add_sources(key, compiled.graph);
  add_packing(key, compiled.plan);
  if (checkpoint)
    key.add(*checkpoint);
  else
    key.add("weights", "random");
  return key.text();
}

}  // namespace nereid::convert
