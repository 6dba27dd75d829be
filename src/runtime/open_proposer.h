// From ExecutorConfig to a proposer of drafts: which kind, its engines, what they take of the
// memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "io/engine_file.h"
#include "runtime/eagle_head.h"
#include "runtime/embedding_rows.h"
#include "runtime/growing_tree.h"
#include "runtime/model_instance.h"

namespace nereid::runtime {

// What the directory of ExecutorConfig::draft_model holds.
enum class DraftKind : uint8_t {
  kModel,
  kMedusa,
  kRedrafter,
  kEagle,
  kEagle3,
  kMtp,  // nothing: a layer of the model's own checkpoint
};

// What proposes drafts, opened but not on the device yet.
class DraftEngines {
 public:
  // Builds engines where there are none. `model` is open but for its runner, `target` is its
  // engine. InvalidArgument, naming draft_model or speculation: another vocabulary or width, a
  // directory of another kind than `config.speculation` says.
  static StatusOr<DraftEngines> open(const ModelInstance& model, const io::EngineFile& target,
                                     const ExecutorConfig& config);

  // Bytes that they take on the device beside a model with these limits.
  StatusOr<size_t> bytes(const ExecutorConfig& config, const exec::RunnerLimits& limits,
                         const DeviceInfo& device) const;

  // Whether they need the hidden states of all positions.
  bool want_all_states() const { return kind_ >= DraftKind::kEagle; }

  // Loads them: takes the device's memory.
  StatusOr<std::unique_ptr<Proposer>> load(const ExecutorConfig& config,
                                           const exec::RunnerLimits& limits,
                                           const kernels::OpenedDevice& device) &&;

 private:
  StatusOr<exec::RunnerLimits> limits_of(const io::EngineFile& file, const ExecutorConfig& config,
                                         const exec::RunnerLimits& limits) const;

  DraftKind kind_ = DraftKind::kModel;
  TreeShape shape_;                          // of kMedusa (a fixed one) and those behind it
  std::vector<io::EngineFile> files_;        // of kMedusa: one for each head
  std::optional<EmbeddingRows> embeddings_;  // of kRedrafter and those behind it
  HeadInput input_;                          // of kEagle and those behind it
  int32_t vocab_size_ = 0;                   // of the model
};

// Whether there are any.
bool wants_draft_engines(const std::filesystem::path& model_dir, const ExecutorConfig& config);

// The layers whose inputs they read: the model's engine has to be built so. InvalidArgument as
// models::eagle3_layers().
StatusOr<std::vector<int32_t>> layers_read_by_drafts(const std::filesystem::path& model_dir,
                                                     const ExecutorConfig& config);

}  // namespace nereid::runtime
