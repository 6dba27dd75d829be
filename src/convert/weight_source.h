// Sources of an engine's weights: a checkpoint, or reproducible noise for measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "graph/ir.h"
#include "io/engine_writer.h"
#include "io/safetensors.h"
#include "tensor/dtype.h"

namespace nereid::convert {

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Elements [first, first + out.size()) of one part of `weight`, row-major, as bf16.
  virtual Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
                      std::span<BF16> out) const = 0;
  // As f32, for f32 weights.
  virtual Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
                      std::span<float> out) const = 0;
  // Encoding of the part's tensor; null: plain.
  virtual const io::Encoding* encoding(const graph::WeightPart&) const { return nullptr; }
};

// Elements [first, first + out.size()) of a weight [experts * n, k], row-major, in the checkpoint's
// values. Errors as checkpoint_source().
Status read_values(const graph::Weight& weight, const io::Checkpoint& checkpoint, int64_t first,
                   std::span<float> out);

// Position of a weight's row in its parts (whole rows only).
struct PartRow {
  const graph::WeightPart* part = nullptr;
  int64_t row = 0;
};
PartRow part_row(const graph::Weight& weight, int64_t row);

// Checkpoint tensors that passed models::check_tensors(); F16 and F32 are rounded to bf16.
// InvalidArgument with file and tensor: an element is not finite.
std::unique_ptr<WeightSource> checkpoint_source(const io::Checkpoint& checkpoint);

// Uniform noise, a pure function of (tensor name, element), scaled like an initialisation; norm
// vectors are ones.
std::unique_ptr<WeightSource> random_source();

// Writes all weights of a compiled graph, in order and layout, some megabytes at a time on all
// usable cores. `source` is read concurrently.
Status write_weights(const graph::Graph& graph, const WeightSource& source,
                     io::EngineWriter& writer);

}  // namespace nereid::convert
