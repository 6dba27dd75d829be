// Embeddings and scores from hidden states.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/request.h"
#include "runtime/step_module.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

class Pooler : public StepModule {
 public:
  // State 0 of each position's `num_states` states is pooled. `head` [labels, hidden_size] is for
  // Pooling::kScore; it must outlive the pooler.
  Pooler(int32_t hidden_size, int32_t num_states, std::span<const float> head)
      : hidden_size_(static_cast<size_t>(hidden_size)),
        width_(hidden_size_ * static_cast<size_t>(num_states)),
        head_(head) {}

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { sums_.erase(id); }
  bool empty() const override { return sums_.empty(); }

  // The hidden states of a row of a pooled sequence are [num_logits, states, hidden_size]. Rows
  // come in the order of their positions; one of position 0 begins anew. The row that ends the
  // prompt fills the update' embedding [hidden_size], or [labels]: means and scores are summed in
  // double, in one order, so they do not depend on how the prompt was cut. ResourceExhausted: no
  // memory; Internal: a state is not finite.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;

 private:
  void add_states(const sched::ScheduledRow& row, std::span<const BF16> hidden,
                  std::vector<double>& sum, std::vector<float>& embedding) const;

  const size_t hidden_size_, width_;
  const std::span<const float> head_;
  absl::flat_hash_map<RequestId, std::vector<double>> sums_;  // empty unless a mean is computed
};

}  // namespace nereid::runtime
