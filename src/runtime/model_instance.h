// A model opened on a device: everything an executor needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/runner.h"
#include "kernels/open.h"
#include "models/score_head.h"
#include "nereid/executor.h"
#include "runtime/adapters/adapter_cache.h"
#include "runtime/clock.h"
#include "runtime/grammars/grammar_masks.h"
#include "runtime/speculation/speculation.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {

// Members are destroyed in reverse order: the device outlives its users. A hung device leaks them.
struct ModelInstance {
  ModelInstance() = default;
  ModelInstance(ModelInstance&&) = default;
  ModelInstance& operator=(ModelInstance&&) = default;
  ~ModelInstance();

  kernels::OpenedDevice device;
  std::unique_ptr<exec::Runner> runner;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: none, or in an unsupported format
  std::vector<TokenId> default_end_ids;
  models::ScoreHead score_head;        // without labels unless the model scores texts
  convert::EngineLimits limits;        // of requests; step limits are in the runner
  std::unique_ptr<Proposer> proposer;  // of drafts; null: none
  int64_t guide_steps =
      GrammarMasks::kTurnSteps;  // limit of the engine thread for the masks of a step
  std::unique_ptr<AdapterCache> adapters =
      std::make_unique<AdapterCache>(AdapterBounds(), 0);  // that requests name
  const Clock* clock = &steady_clock();                    // must outlive the executor
};

// Build options of the model's engine for the device.
StatusOr<convert::BuildOptions> build_options(const std::filesystem::path& model_dir,
                                              const ExecutorConfig& config,
                                              const kernels::OpenedDevice& device);

// Builds the engine unless cached, opens the device, sizes the KV cache, loads the engine.
StatusOr<ModelInstance> open_model(const std::filesystem::path& model_dir,
                                   const ExecutorConfig& config);

// An executor for an opened model; `config` must be the one it was opened with.
std::unique_ptr<Executor> make_executor(ModelInstance model, const ExecutorConfig& config);

}  // namespace nereid::runtime
