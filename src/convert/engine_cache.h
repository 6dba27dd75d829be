// Engine cache: engines are built on first use and kept; stale or damaged ones are rebuilt.
//
// Cache key: a hash of everything that determines the engine's bytes: nereid's version, the
// compiled plan for the device (which tensors become which weight, packing), and the checkpoint. A
// changed pass, packing, kernel cost or option changes the key if it changes the plan; results of
// measure_products() do not. The checkpoint counts with file names, sizes and headers, and
//   - all weights, if they total at most kHashAllBytes;
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
  bool random_weights = false;   // reproducible noise; only config.json is needed
  bool rebuild = false;          // even if a valid engine is cached
  Device* measure_on = nullptr;  // runs measure_products() for a new engine; null: skipped
};

struct BuildReport {
  std::filesystem::path path;
  std::string key;
  bool built = false;  // false: cached, or given as an engine
  double seconds = 0;  // build time
  uint64_t bytes = 0;  // size of the engine file
};

// Path of a model's engine for a device, built if not validly cached. `model_dir` may also be an
// engine file or a directory with rank0.engine, which are used unchanged.
//
// A cached engine's plan and (up to io::kAutoVerifyBytes) weights are verified; damaged, foreign or
// outdated files are logged and replaced. Thread- and process-safe: one builds, others wait;
// different engines are built in parallel.
//
// If the cache is not writable, the engine is built in memory (logged); take_engine() opens both
// kinds.
//
// InvalidArgument/DataLoss: fault of the model directory, with file and tensor or field.
// Unavailable: neither cache nor memory.
StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry,
                                              const DeviceInfo& device,
                                              const BuildOptions& options = {},
                                              BuildReport* report = nullptr);

// ensure_engine() for a compiled model; `checkpoint`: null = random weights.
StatusOr<std::filesystem::path> ensure_engine(const std::filesystem::path& model_dir,
                                              const kernels::Registry& registry, Compiled compiled,
                                              const io::Checkpoint* checkpoint,
                                              const DeviceInfo& device,
                                              const BuildOptions& options);

// Opens the result of ensure_engine(), whose weights were verified or just written. An in-memory
// engine is then owned by the opened file.
StatusOr<io::EngineFile> take_engine(const std::filesystem::path& path);

// Writes an engine file of a compiled model; no checkpoint: random weights. Errors as above.
Status write_engine(const std::filesystem::path& path, const std::string& key,
                    const Compiled& compiled, const io::Checkpoint* checkpoint);

// Writes rankN.engine in `dir` for each rank of a multi-rank checkpoint: the whole plan, and the
// rank's file. `workers` at a time.
Status write_rank_engines(const std::filesystem::path& dir, const std::string& key,
                          const Compiled& compiled, const io::Checkpoint& checkpoint,
                          int32_t workers);

// The engine file at or in `path` (of an encoder-decoder model in two folders: its decoder's);
// empty: a model directory.
std::filesystem::path given_engine(const std::filesystem::path& path);

}  // namespace nereid::convert
