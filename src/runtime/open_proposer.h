// From ExecutorConfig to a proposer of drafts: which kind, its engines, what they take of the
// memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "io/engine_file.h"
#include "runtime/draft_tree.h"
#include "runtime/eagle_head.h"
#include "runtime/model_instance.h"

namespace nereid::runtime {

// What the directory of ExecutorConfig::draft_model holds.
enum class DraftKind : uint8_t { kModel, kMedusa, kEagle };

// What proposes drafts, opened but not on the device yet.
class DraftEngines {
 public:
  // Builds engines where there are none. `model` is open but for its runner, `target` is its
  // engine. InvalidArgument, naming draft_model or speculation: another vocabulary or width, a
  // directory of another kind than `config.speculation` says.
  static StatusOr<DraftEngines> open(const ModelInstance& model, const io::EngineFile& target,
                                     const ExecutorConfig& config);

  // Of the memory, beside a model with these limits.
  StatusOr<size_t> bytes(const ExecutorConfig& config, const exec::RunnerLimits& limits,
                         const DeviceInfo& device) const;

  // Whether they need the hidden states of all positions.
  bool want_all_states() const { return kind_ == DraftKind::kEagle; }

  StatusOr<std::unique_ptr<Proposer>> load(const ExecutorConfig& config,
                                           const exec::RunnerLimits& limits,
                                           const kernels::OpenedDevice& device) &&;

 private:
  DraftKind kind_ = DraftKind::kModel;
  DraftTree tree_;                           // of kMedusa
  std::vector<io::EngineFile> files_;        // of kMedusa: one for each head
  std::optional<EmbeddingRows> embeddings_;  // of kEagle
};

// Whether there are any.
bool wants_draft_engines(const ExecutorConfig& config);

}  // namespace nereid::runtime
