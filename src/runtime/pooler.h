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
  explicit Pooler(int32_t hidden_size) : hidden_size_(static_cast<size_t>(hidden_size)) {}

  // A sequence that is pooled has begun.
  void open(RequestId id) { sums_.try_emplace(id); }

  // What a row of a pooled sequence gave, [num_logits, hidden_size]; others are left alone, and so
  // is what comes after forget(). Rows come in the order of their positions; one of position 0
  // begins anew. The row that ends the prompt fills `embedding` [hidden_size]: a mean is summed in
  // double, position by position, so it does not depend on how the prompt was cut.
  // ResourceExhausted: no memory; Internal: a state is not finite.
  Status add(const sched::Row& row, std::span<const BF16> hidden, std::vector<float>& embedding);

  void forget(RequestId id) { sums_.erase(id); }
  bool empty() const { return sums_.empty(); }

 private:
  void add_states(const sched::Row& row, std::span<const BF16> hidden, std::vector<double>& sum,
                  std::vector<float>& embedding) const;

  const size_t hidden_size_;
  absl::flat_hash_map<RequestId, std::vector<double>> sums_;  // empty unless it is a mean
};

}  // namespace nereid::runtime
