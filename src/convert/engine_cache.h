// Engines are built when first needed and kept; none has to be built by hand, and a stale or
// damaged one is rebuilt, not refused.
//
// The key of a cached engine is a hash of all that decides its bytes: nereid's version, what the
// compiler makes of the model directory for the device (the whole plan, which tensors become which
// weight, how weights are packed), and the checkpoint. So a change of a pass, of a packing, of a
// kernel's cost or of a kernel that is measured gives another key, and so does an option, as far as
// it changes the plan; not what measure_products() finds. Of the checkpoint it covers file names,
// sizes and headers, and
//   - all weights, when they are at most kHashAllBytes together;
//   - else each file's modification time and kSamples evenly spread pieces of kSampleBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "convert/compile.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::convert {

inline constexpr uint64_t kHashAllBytes = uint64_t{256} << 20;
inline constexpr uint64_t kSamples = 64;
inline constexpr uint64_t kSampleBytes = uint64_t{64} << 10;

struct BuildOptions {
  std::filesystem::path cache_dir;  // empty: base's cache_dir()
  CompileOptions compile;
  bool random_weights = false;   // repeatable noise; the directory needs config.json only
  bool rebuild = false;          // even when a good engine is cached
  Device* measure_on = nullptr;  // of a new engine: measure_products(); null: it is left out
};

struct BuildReport {
  std::filesystem::path path;
  std::string key;
  bool built = false;  // false: taken from the cache, or given
  double seconds = 0;  // of building
  uint64_t bytes = 0;  // size of the engine file
};

// The engine file for a model on a device, built if the cache has no good one. `model_dir` may also
// be an engine file or a directory with a rank0.engine, which are used as they are.
//
// A cached engine's plan and (up to io::kAutoVerifyBytes) weights are verified here; a damaged,
// foreign or outdated file is logged and replaced. Any number of threads and processes may ask for
// the same engine at once: one builds, the others wait. Different engines are built side by side.
//
// Where the cache cannot be written (a read-only or full disk) the engine is built in memory, with
// a line in the log; take_engine() opens both kinds.
//
// InvalidArgument/DataLoss: the model directory is at fault, naming file and tensor or field.
// Unavailable: there is neither a cache nor memory.
StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry,
                                              const DeviceInfo& device,
                                              const BuildOptions& options = {},
                                              BuildReport* report = nullptr);

// The same for a model that has been compiled; `checkpoint`: null where weights are random.
StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry, Compiled compiled,
                                              const io::Checkpoint* checkpoint,
                                              const DeviceInfo& device,
                                              const BuildOptions& options);

// Opens what ensure_engine() gave, whose weights were verified or just written. One in memory is
// the opened file's alone from then on, and goes with it.
StatusOr<io::EngineFile> take_engine(const std::filesystem::path& path);

// Writes an engine file of a compiled model; random weights without a checkpoint. Errors as above.
Status write_engine(const std::filesystem::path& path, const std::string& key,
                    const Compiled& compiled, const io::Checkpoint* checkpoint);

// Writes rankN.engine in `dir` for each rank of the model's checkpoint, which has several: a rank's
// file of the checkpoint in each, and the plan of all. `workers` of them at a time.
Status write_rank_engines(const std::filesystem::path& dir, const std::string& key,
                          const Compiled& compiled, const io::Checkpoint& checkpoint,
                          int32_t workers);

// The engine file that `path` is or holds; empty when it is a model directory.
std::filesystem::path given_engine(const std::filesystem::path& path);

}  // namespace nereid::convert
