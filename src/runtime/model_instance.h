// A model opened on a device, or on several: everything an executor needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "kernels/open.h"
#include "models/score_head.h"
#include "nereid/executor.h"
#include "runtime/adapters/adapter_cache.h"
#include "runtime/clock.h"
#include "runtime/grammars/grammar_masks.h"
#include "runtime/prompts/pictures.h"
#include "runtime/speculation/speculation.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {

// Members are destroyed in reverse order: the device outlives its users. A hung device leaks them.
struct ModelInstance {
  ModelInstance() = default;
  ModelInstance(ModelInstance&&) = default;
  ModelInstance& operator=(ModelInstance&&) = default;
  ~ModelInstance();

  // Health of all ranks.
  Health& health() const { return ranks_health ? *ranks_health : device.device->health(); }

  kernels::OpenedDevice device;                // of the first rank
  std::vector<kernels::OpenedDevice> devices;  // of the others
  std::unique_ptr<Health> ranks_health;        // null: one rank
  int32_t num_stages = 1;                      // of its pipeline
  std::unique_ptr<exec::Runner> runner;
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: none, or in an unsupported format
  std::vector<TokenId> default_end_ids;
  EncoderFacts encoder;  // of an encoder-decoder model
  PictureRules pictures;
  models::ScoreHead score_head;        // without labels unless the model scores texts
  std::vector<io::Plan> plans;         // of the first rank: decoder, then encoder
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

// Builds the engines of all ranks unless cached, opens their devices, sizes the KV cache, loads the
// engines. `has_trees`: rows may have draft trees, of a proposer that the caller sets.
// `num_unopened`: see RankPart.
StatusOr<ModelInstance> open_model(const std::filesystem::path& model_dir,
                                   const ExecutorConfig& config, bool has_trees = false,
                                   int32_t num_unopened = 0);

// An executor for an opened model; `config` must be the one it was opened with.
std::unique_ptr<Executor> make_executor(ModelInstance model, const ExecutorConfig& config);

}  // namespace nereid::runtime
