// Logits that clients ask for: of their prompts and of the tokens that are generated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/step_module.h"

namespace nereid::runtime {

class OutputLogits : public StepModule {
 public:
  explicit OutputLogits(int32_t vocab_size) : vocab_(static_cast<size_t>(vocab_size)) {}

  void open(const sched::SequenceSpec& spec, const Submit& request) override;
  void close(RequestId id) override { prompts_.erase(id); }
  bool empty() const override { return prompts_.empty(); }
  // ResourceExhausted: there is no memory for copies.
  Status completed(const LandedRow& completed, EngineUpdate& update) override;
  void finished(const FinishedStep& step) override;

 private:
  void add_prompt(const sched::ScheduledRow& row, std::span<const float> logits,
                  EngineUpdate& update);
  void add_drawn(const LandedRow& completed, EngineUpdate& update) const;

  const size_t vocab_;
  // f32 [prompt, vocab] by sequence with return_context_logits, until the whole prompt is computed.
  absl::flat_hash_map<RequestId, std::vector<float>> prompts_;
};

}  // namespace nereid::runtime
