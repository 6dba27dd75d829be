#include "convert/engine_key.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "convert/engine_cache.h"
#include "io/engine_file.h"
#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"

namespace nereid::convert {
namespace {

// A hash of labelled parts; labels and lengths keep different lists from meeting.
class Key {
 public:
  void add(std::string_view label, std::string_view text) {
    state_ = hash64(fmt::format("{}:{}:", label, text.size()), state_);
    state_ = hash64(text, state_);
  }
  void add(std::string_view label, uint64_t number) { add(label, hex64(number)); }
  std::string text() const { return hex64(state_); }

 private:
  uint64_t state_ = 0;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// All of the plan but checksums, which are not known yet: facts of the model, values, kernels,
// layouts and places of weights, the device.
void add_plan(Key& key, const io::Plan& plan) {
  for (const io::Weight& w : plan.weights)
    NEREID_CHECK(std::ranges::all_of(w.planes, [](const io::Plane& p) { return !p.checksum; }));
  key.add("plan", json::serialize(io::plan_to_json(plan)));
}

// What each weight of the plan is made of.
void add_sources(Key& key, const graph::Graph& graph) {
  for (const graph::Weight& weight : graph.weights) {
    key.add("weight", weight.is_vector);
    key.add("stored", weight.stored ? kernels::text_of(*weight.stored) : "");
    for (const graph::WeightPart& part : weight.parts) {
      key.add("from", part.tensor);
      for (const int64_t number :
           {part.size, part.first, part.total, part.first_col, part.total_cols, part.step,
            part.stacked, part.index, part.cols, part.pairs})
        key.add("slice", static_cast<uint64_t>(number));
      key.add("transposed", part.transposed);
      key.add("unit_rows", part.unit_rows);
    }
  }
}

// How weights are rounded and packed: the bytes that a small matrix becomes in each of the plan's
// formats.
void add_packing(Key& key, const io::Plan& plan) {
  constexpr int64_t kRows = kernels::kPanelRows + 1, kCols = kernels::kPanelStepK + 1;
  std::vector<BF16> matrix(static_cast<size_t>(kRows * kCols));
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = to_bf16(static_cast<float>(i));
  std::vector<std::byte> packed(kernels::panel16_bytes(kRows, kCols));
  const kernels::RowMajorPart whole{matrix.data(), kRows};
  NEREID_CHECK(kernels::pack_panel16({&whole, 1}, kCols, packed).ok());
  key.add("packing", text_of(packed));
  std::vector<kernels::WeightFormat> done = {{}, kernels::kFloat32};
  for (const io::Weight& w : plan.weights) {
    if (std::ranges::find(done, w.format) != done.end()) continue;
    done.push_back(w.format);
    kernels::QuantizedPlanes planes;
    NEREID_CHECK(kernels::quantize(w.format, w.layout, matrix, kCols, planes).ok());
    key.add("data", text_of(std::as_bytes(std::span(planes.data))));
    key.add("scales", text_of(std::as_bytes(std::span(planes.scales))));
    key.add("zeros", text_of(std::as_bytes(std::span(planes.zeros))));
    key.add("minima", text_of(std::as_bytes(std::span(planes.minima))));
  }
}

void add_samples(Key& key, const io::TensorFile& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file.path(), error).time_since_epoch();
  key.add("time", static_cast<uint64_t>(
                      std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
  for (const io::StoredTensor& tensor : file.tensors()) {
    const size_t n = std::min<size_t>(tensor.data.size(), 64);
    key.add("tensor", text_of(tensor.data.first(n)));
  }
  const uint64_t step = file.file_bytes() / kSamples;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t at = i * step;
    key.add("sample", text_of(file.bytes().subspan(
                          at, std::min<uint64_t>(kSampleBytes, file.file_bytes() - at))));
  }
}

void add_checkpoint(Key& key, const io::Checkpoint& checkpoint) {
  uint64_t total = 0;
  for (const auto& file : checkpoint.files()) total += file->file_bytes();
  for (const auto& file : checkpoint.files()) {
    key.add("file", file->path().filename().string());
    key.add("size", file->file_bytes());
    key.add("header", text_of(file->header()));
    if (total <= kHashAllBytes)
      key.add("bytes", text_of(file->bytes()));
    else
      add_samples(key, *file);
  }
}

}  // namespace

std::string engine_key(const Compiled& compiled, const io::Checkpoint* checkpoint) {
  Key key;
  key.add("nereid", NEREID_VERSION);
  key.add("format", io::kEngineFormatVersion);
  add_plan(key, compiled.plan);
  add_sources(key, compiled.graph);
  add_packing(key, compiled.plan);
  if (checkpoint)
    add_checkpoint(key, *checkpoint);
  else
    key.add("weights", "random");
  return key.text();
}

}  // namespace nereid::convert
