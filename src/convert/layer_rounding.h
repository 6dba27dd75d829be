// The matrices of one layer, rounded: with factors taken out of their inputs, errors made up for,
// or plainly.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/product_inputs.h"
#include "convert/quantize_checkpoint.h"
#include "io/checkpoint.h"
#include "kernels/api/quantize.h"

namespace nereid::convert {

// New numbers of vectors that factors were put into, by tensor; bf16 all of them.
using ChangedVectors = std::map<std::string, std::vector<float>, std::less<>>;

class LayerRounding {
 public:
  // `graph` as its family built it. Everything outlives it.
  LayerRounding(const QuantizeOptions& options, const graph::Graph& graph,
                const io::Checkpoint& checkpoint, ThreadPool& pool, ChangedVectors& changed)
      : options_(options), graph_(graph), checkpoint_(checkpoint), pool_(pool), changed_(changed) {}

  // The inputs of a layer in the order of the graph, with the statistics of each.
  Status run(std::span<const ProductInput> inputs,
             std::span<const quant::InputStatistics> statistics);

  // Row-major, of a weight of the inputs.
  const kernels::QuantizedPlanes& planes(graph::WeightId id) const { return planes_.at(id); }

 private:
  Status search(const ProductInput& input, const quant::InputStatistics& statistics,
                std::vector<float>& factors);
  Status put_into_norm(const FactorPlace& place, std::vector<float>& factors);
  Status put_into_rows(const FactorPlace& place, std::span<const float> factors);
  Status round(const ProductInput& input, const quant::InputStatistics& statistics,
               std::span<const float> factors);
  kernels::WeightFormat format_of(graph::WeightId id) const;
  StatusOr<std::vector<float>*> vector_of(graph::WeightId id);

  const QuantizeOptions& options_;
  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  ThreadPool& pool_;
  ChangedVectors& changed_;
  std::map<graph::WeightId, std::vector<float>> matrices_;
  std::map<graph::WeightId, kernels::QuantizedPlanes> planes_;
};

}  // namespace nereid::convert
