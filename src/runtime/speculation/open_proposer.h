// From ExecutorConfig to a draft proposer: kind, engines, memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "io/engine_file.h"
#include "runtime/model_instance.h"
#include "runtime/prompts/embedding_rows.h"
#include "runtime/speculation/eagle_head.h"
#include "runtime/speculation/growing_tree.h"

namespace nereid::runtime {

// Contents of the ExecutorConfig::draft_model directory.
enum class DraftKind : uint8_t {
  kModel,
  kMedusa,
  kRedrafter,
  kEagle,
  kEagle3,
  kMtp,  // no directory: a layer of the model's own checkpoint
};

// The engines of a proposer, opened but not loaded to the device.
class DraftEngines {
 public:
  // Builds missing engines. `model` is open except its runner, `target` is its engine.
  // InvalidArgument naming draft_model or speculation: another vocabulary or width, or a directory
  // of another kind than `config.speculation`.
  static StatusOr<DraftEngines> open(const ModelInstance& model, const io::EngineFile& target,
                                     const ExecutorConfig& config);

  // Device bytes next to a model with these limits.
  StatusOr<size_t> bytes(const ExecutorConfig& config, const exec::RunnerLimits& limits,
                         const DeviceInfo& device) const;

  // Whether hidden states of all positions are needed.
  bool want_all_states() const { return kind_ >= DraftKind::kEagle; }

  // Loads the engines to the device.
  StatusOr<std::unique_ptr<Proposer>> load(const ExecutorConfig& config,
                                           const exec::RunnerLimits& limits,
                                           const kernels::OpenedDevice& device) &&;

 private:
  StatusOr<exec::RunnerLimits> limits_of(const io::EngineFile& file, const ExecutorConfig& config,
                                         const exec::RunnerLimits& limits) const;

  DraftKind kind_ = DraftKind::kModel;
  TreeShape shape_;                          // kMedusa: fixed; kRedrafter and above
  std::vector<io::EngineFile> files_;        // kMedusa: one per head
  std::optional<EmbeddingRows> embeddings_;  // kRedrafter and above
  HeadInput input_;                          // kEagle and above
  int32_t vocab_size_ = 0;                   // of the target model
};

// Whether the configuration needs draft engines.
bool wants_draft_engines(const std::filesystem::path& model_dir, const ExecutorConfig& config);

// Layers whose inputs the draft head reads; the target model's engine must be built with them.
// InvalidArgument as models::eagle3_layers().
StatusOr<std::vector<int32_t>> layers_read_by_drafts(const std::filesystem::path& model_dir,
                                                     const ExecutorConfig& config);

}  // namespace nereid::runtime
