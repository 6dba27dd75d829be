// Where the weights of an engine come from: a checkpoint, or a generator of repeatable noise for
// measurements without one.
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
  // As f32 numbers, for a weight of that format.
  virtual Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
                      std::span<float> out) const = 0;
  // How the part's tensor is encoded; null where it is not.
  virtual const io::Encoding* encoding(const graph::WeightPart&) const { return nullptr; }
};

// Elements [first, first + out.size()) of a weight [experts * n, k], row-major, which may span
// parts: as the checkpoint has them. Errors as those of checkpoint_source().
Status read_values(const graph::Weight& weight, const io::Checkpoint& checkpoint, int64_t first,
                   std::span<float> out);

// Where row `row` of a weight whose parts are whole rows lies: the part, and the row of its tensor.
struct PartRow {
  const graph::WeightPart* part = nullptr;
  int64_t row = 0;
};
PartRow part_row(const graph::Weight& weight, int64_t row);

// Checkpoint tensors, which models::check_tensors() has accepted; F16 and F32 are rounded to bf16.
// InvalidArgument naming file and tensor when an element is not finite.
std::unique_ptr<WeightSource> checkpoint_source(const io::Checkpoint& checkpoint);

// Uniform noise that is a pure function of (tensor name, element), scaled like a fresh
// initialisation; vectors named "norm" are all ones.
std::unique_ptr<WeightSource> random_source();

// Writes all weights of a compiled graph in order and in their layouts, some megabytes at a time,
// which all usable cores convert. `source` is read by several threads at once.
Status write_weights(const graph::Graph& graph, const WeightSource& source,
                     io::EngineWriter& writer);

}  // namespace nereid::convert
