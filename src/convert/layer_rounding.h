// The matrices of one layer, but for its experts', or of one expert, rounded: with factors taken
// out of their inputs, errors made up for, or plainly.
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

// What the inputs of a norm's place are multiplied by: its numbers in the checkpoint divided by its
// new ones; 1 where it has none.
StatusOr<std::vector<float>> factors_of_norm(const FactorPlace& place, const graph::Graph& graph,
                                             const io::Checkpoint& checkpoint,
                                             const ChangedVectors& changed);

class LayerRounding {
 public:
  // `graph` as its family built it. Everything outlives it.
  LayerRounding(const QuantizeOptions& options, const graph::Graph& graph,
                const io::Checkpoint& checkpoint, ThreadPool& pool, ChangedVectors& changed)
      : options_(options), graph_(graph), checkpoint_(checkpoint), pool_(pool), changed_(changed) {}

  // Inputs of one layer and one expert in the order of the graph, with the statistics of each. The
  // factors of a norm that experts read are chosen with the inputs of no expert, so these come
  // first.
  Status run(std::span<const ProductInput> inputs,
             std::span<const quant::InputStatistics> statistics);

  // Row-major, of a weight of the inputs.
  const kernels::QuantizedPlanes& planes(graph::WeightId id) const { return planes_.at(id); }
  // Matrices of experts that were rounded plainly, though calibration was asked for.
  int64_t num_unseen() const { return num_unseen_; }

 private:
  Status read_matrix(graph::WeightId id, int64_t expert, std::vector<float>& matrix) const;
  Status find_factors(const ProductInput& input, const quant::InputStatistics& statistics,
                      std::vector<float>& factors);
  Status search(const ProductInput& input, const quant::InputStatistics& statistics,
                std::vector<float>& factors);
  Status put_into_norm(const FactorPlace& place, std::vector<float>& factors);
  Status put_into_rows(const FactorPlace& place, std::span<const float> factors);
  Status round(const ProductInput& input, const quant::InputStatistics& statistics,
               std::span<const float> factors);
  void round_with_one_scale(const ProductInput& input);
  kernels::WeightFormat format_of(graph::WeightId id) const;
  StatusOr<std::vector<float>*> vector_of(graph::WeightId id);

  const QuantizeOptions& options_;
  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  ThreadPool& pool_;
  ChangedVectors& changed_;
  std::map<graph::WeightId, std::vector<float>> matrices_;
  std::map<graph::WeightId, kernels::QuantizedPlanes> planes_;
  int64_t num_unseen_ = 0;
};

}  // namespace nereid::convert
