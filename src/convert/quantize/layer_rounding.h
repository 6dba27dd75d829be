// Rounding of the matrices of one layer (without experts) or of one expert: with column factors
// (AWQ, SmoothQuant), error feedback (GPTQ), or plainly.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/quantize/product_inputs.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "io/checkpoint.h"
#include "kernels/api/quantize.h"

namespace nereid::convert {

// Changed vectors (norm weights, biases) by tensor, all bf16.
using ChangedVectors = std::map<std::string, std::vector<float>, std::less<>>;

// Factors taken out of a norm: checkpoint weight / new weight; 1 if unchanged.
StatusOr<std::vector<float>> factors_of_norm(const FactorPlace& place, const graph::Graph& graph,
                                             const io::Checkpoint& checkpoint,
                                             const ChangedVectors& changed);

class LayerRounding {
 public:
  // `graph` as built by the family. All arguments must outlive it.
  LayerRounding(const QuantizeOptions& options, const graph::Graph& graph,
                const io::Checkpoint& checkpoint, ThreadPool& pool, ChangedVectors& changed)
      : options_(options), graph_(graph), checkpoint_(checkpoint), pool_(pool), changed_(changed) {}

  // Rounds the inputs of one layer and one expert, in graph order, with their statistics. Factors
  // of a norm that experts read are chosen with the inputs outside experts, which come first.
  Status run(std::span<const ProductInput> inputs,
             std::span<const quant::InputStatistics> statistics);

  // Row-major planes of an input's weight.
  const kernels::QuantizedPlanes& planes(graph::WeightId id) const { return planes_.at(id); }
  // Expert matrices rounded plainly for lack of rows in the calibration text.
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
