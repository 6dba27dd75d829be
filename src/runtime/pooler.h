// Embeddings and scores from hidden states.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/request.h"
#include "sched/step_plan.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

class Pooler {
 public:
  // State 0 of each position's `num_states` states is pooled. `head` [labels, hidden_size] is for
  // Pooling::kScore; it must outlive the pooler.
  Pooler(int32_t hidden_size, int32_t num_states, std::span<const float> head)
      : hidden_size_(static_cast<size_t>(hidden_size)),
        width_(hidden_size_ * static_cast<size_t>(num_states)),
        head_(head) {}

  // Starts a pooled sequence.
  void open(RequestId id) { sums_.try_emplace(id); }

  // Adds the states of a row, [num_logits, states, hidden_size]; ignored unless the sequence is
  // open. Rows come in order of positions; position 0 restarts. The row that ends the prompt fills
  // `embedding`: [hidden_size] or [labels]. Means and scores are summed in double in order of
  // positions: independent of chunks. ResourceExhausted: no memory; Internal: a state is not
  // finite.
  Status add(const sched::Row& row, std::span<const BF16> hidden, std::vector<float>& embedding);

  void forget(RequestId id) { sums_.erase(id); }
  bool empty() const { return sums_.empty(); }

 private:
  void add_states(const sched::Row& row, std::span<const BF16> hidden, std::vector<double>& sum,
                  std::vector<float>& embedding) const;

  const size_t hidden_size_, width_;
  const std::span<const float> head_;
  absl::flat_hash_map<RequestId, std::vector<double>> sums_;  // empty unless a mean is computed
};

}  // namespace nereid::runtime
