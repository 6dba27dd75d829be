// Makes embeddings of hidden states, as steps bring them.
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
  // The first of each position's `num_states` states is pooled. `head` [labels, hidden_size] is for
  // Pooling::kScore; it must outlive the pooler.
  Pooler(int32_t hidden_size, int32_t num_states, std::span<const float> head)
      : hidden_size_(static_cast<size_t>(hidden_size)),
        width_(hidden_size_ * static_cast<size_t>(num_states)),
        head_(head) {}

  // Begins a sequence that is pooled.
  void open(RequestId id) { sums_.try_emplace(id); }

  // What a row of a pooled sequence gave, [num_logits, states, hidden_size]; others are left alone,
  // and so is what comes after forget(). Rows come in the order of their positions; one of position
  // 0 begins anew. The row that ends the prompt fills `embedding` [hidden_size], or [labels]: means
  // and scores are summed in double, in one order, so they do not depend on how the prompt was cut.
  // ResourceExhausted: no memory; Internal: a state is not finite.
  Status add(const sched::Row& row, std::span<const BF16> hidden, std::vector<float>& embedding);

  void forget(RequestId id) { sums_.erase(id); }
  bool empty() const { return sums_.empty(); }

 private:
  void add_states(const sched::Row& row, std::span<const BF16> hidden, std::vector<double>& sum,
                  std::vector<float>& embedding) const;

  const size_t hidden_size_, width_;
  const std::span<const float> head_;
  absl::flat_hash_map<RequestId, std::vector<double>> sums_;  // empty unless it is a mean
};

}  // namespace nereid::runtime
