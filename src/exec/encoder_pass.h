// The encoder of an encoder-decoder model: runs a step's encoder inputs in front of the decoder's
// rows, on the runner's stream, and stores the keys and values of cross attention.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/bound_plan.h"
#include "exec/kv_cache.h"
#include "exec/runner.h"
#include "exec/step_data.h"
#include "exec/step_message.h"
#include "io/engine_file.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::exec {

// Memory of an encoder beside a decoder with `limits`.
std::vector<MemoryItem> encoder_memory_table(const io::Plan& encoder, const RunnerLimits& limits);

class EncoderPass {
 public:
  // `limits`: of the decoder's runner. `cross`: the cache of its cross attention. `exchange`: of
  // its rank. Device, registry, cache and exchange outlive the pass. InvalidArgument: no encoder,
  // or of another rank than `mapping`'s.
  static StatusOr<std::unique_ptr<EncoderPass>> create(io::EngineFile file,
                                                       const RunnerLimits& limits, Device& device,
                                                       const kernels::Registry& registry,
                                                       const KvCache& cross, Exchange& exchange,
                                                       const io::Mapping& mapping);

  // Checks the message's encoder inputs and keeps them for run(index). InvalidArgument: the
  // message; ResourceExhausted: no memory for embeddings.
  Status stage(const StepMessageView& message, int32_t index);
  // Runs the inputs staged last under `index`; on the stream.
  Status run(int32_t index, Stream& stream);

  const io::EngineFile& file() const { return file_; }
  std::vector<MemoryItem> memory() const;

 private:
  struct Staging {
    Buffer step_data, host_embeddings, embeddings;
    size_t embedding_bytes = 0;
    StepData step;  // no rows: no inputs
  };

  EncoderPass(io::EngineFile file, const RunnerLimits& limits)
      : file_(std::move(file)), limits_(limits) {}
  Status allocate(Device& device);
  Status stage_embeddings(std::span<const BF16> embeddings, Staging& staging);

  const io::EngineFile file_;
  const RunnerLimits limits_;  // of the encoder's own steps
  Device* device_ = nullptr;
  int32_t width_ = 0;  // of an external embedding
  Buffer weights_, step_data_, arena_;
  KvCache cache_;  // keys and values within a step
  std::vector<Staging> staging_;
  BoundPlan bound_;
};

}  // namespace nereid::exec
