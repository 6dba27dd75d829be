// The encoder of an encoder-decoder model or of a model of pictures: runs a step's encoder inputs
// in front of the decoder's rows, on the runner's stream, and stores their results: keys and values
// of cross attention, or features. Outputs of inputs that ask for them come back to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/bound_plan.h"
#include "exec/kv_cache.h"
#include "exec/rope_table.h"
#include "exec/runner.h"
#include "exec/step_data.h"
#include "exec/step_message.h"
#include "io/engine_file.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::exec {

// Largest number of parts, and of windows, of a step's pictures together (EncoderInput).
constexpr int32_t max_picture_parts(const io::PictureFacts& facts) {
  return facts.window > 0 ? 1024 : 256;
}

// Memory of an encoder beside a decoder with `limits`.
std::vector<MemoryItem> encoder_memory_table(const io::Plan& encoder, const RunnerLimits& limits);

// Where results go; outlives the pass.
struct EncoderResults {
  const KvCache* cross = nullptr;  // of encoder-decoder models
  std::byte* features = nullptr;   // of models of pictures: bf16 [feature rows, width]
  int32_t width = 0;
};

class EncoderPass {
 public:
  // `limits`: of the decoder's runner. `exchange`: of its rank. `adapters`: of its rank, the
  // encoder's modules behind the decoder's. Device, registry, exchange and adapters outlive the
  // pass. InvalidArgument: no encoder, or of another rank than `mapping`'s.
  static StatusOr<std::unique_ptr<EncoderPass>> create(
      io::EngineFile file, const RunnerLimits& limits, Device& device,
      const kernels::Registry& registry, const EncoderResults& results, Exchange& exchange,
      const AdapterPool& adapters, const io::Mapping& mapping);

  // Checks the message's encoder inputs and keeps them for run(index). InvalidArgument: the
  // message; ResourceExhausted: no memory for embeddings.
  Status stage(const StepMessageView& message, int32_t index);
  // Runs the inputs staged last under `index`; on the stream.
  Status run(int32_t index, Stream& stream);

  // Numbers of a token's output; 0: of pictures, whose features are not returned.
  int32_t output_width() const;
  // Outputs that the step staged last under `index` returns, once it is done; none on other ranks
  // than the drawing one.
  std::span<const EncodedInput> outputs(int32_t index) const {
    return staging_[static_cast<size_t>(index)].outputs;
  }

  const io::EngineFile& file() const { return file_; }
  std::vector<MemoryItem> memory() const;

 private:
  // Rows of a block of the feature pool that follow one another.
  struct FeatureRun {
    int64_t from = 0;  // row of the pass's features
    int64_t to = 0;    // row of the pool
    int64_t count = 0;
  };
  struct Staging {
    Buffer step_data, host_embeddings, embeddings;
    size_t embedding_bytes = 0;
    StepData step;     // no rows: no inputs
    StepData windows;  // the same tokens, with the windows as rows
    std::vector<FeatureRun> features;
    Buffer host_outputs;
    std::vector<int32_t> first_tokens;  // of each of `outputs`
    std::vector<EncodedInput> outputs;
  };

  EncoderPass(io::EngineFile file, const RunnerLimits& limits, const EncoderResults& results);
  Status allocate(Device& device);
  Status stage_embeddings(std::span<const BF16> embeddings, Staging& staging);
  Status stage_outputs(const StepMessageView& message, Staging& staging);
  Status stage_windows(const StepMessageView& message, Staging& staging);
  Status stage_features(const StepMessageView& message, Staging& staging);
  void join_padding(const StepMessageView& message, Staging& staging) const;
  Status check(const EncoderInput& input) const;
  Status store_features(const Staging& staging, Stream& stream) const;
  Status read_outputs(const Staging& staging, Stream& stream) const;

  const io::EngineFile file_;
  const RunnerLimits limits_;  // of the encoder's own steps
  const EncoderResults results_;
  const int64_t num_feature_blocks_;  // of the decoder's runner
  int32_t patches_per_feature_ = 1;
  Device* device_ = nullptr;
  int32_t width_ = 0;  // of an external embedding
  Buffer weights_, step_data_, arenas_[io::kNumExtents];
  KvCache cache_;  // keys and values within a step
  RopeTables ropes_;
  std::vector<Staging> staging_;
  BoundPlan bound_;
};

}  // namespace nereid::exec
