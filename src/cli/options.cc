#include "cli/options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <limits>

#include "base/log.h"

namespace nereid::cli {
void ModelOptions::declare(CLI::App& command) {
  constexpr auto kMax = std::numeric_limits<int32_t>::max();
  command.add_option("model", model_dir, "checkpoint folder (Hugging Face layout) or engine file")
      ->required()
      ->check(CLI::ExistingPath);
  command.add_option("--device", executor.device, "cpu | cuda:N")->capture_default_str();
  command
      .add_option("--threads", executor.num_threads,
                  "CPU compute threads; 0 = one per physical core this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--memory", executor.memory_bytes,
                  "bytes for weights, buffers and KV cache together (2147483648, 2G, 512M); 0 = a "
                  "share of what is free")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command
      .add_option("--kv-cache-tokens", kv_cache_tokens,
                  "KV cache capacity in tokens; 0 = what fits in --memory")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--max-batch-size", executor.max_batch_size,
                  "sequences computed together in one step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      .add_option("--max-num-tokens", executor.max_num_tokens,
                  "tokens computed in one step; longer prompts are split over several steps")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--max-queue-size", executor.max_queue_size,
                  "requests that may wait; when full, new ones are refused (503)")
      ->check(CLI::Range(1, kMax))
      ->capture_default_str();
  command.add_option(
      "--isa", executor.isa,
      "CPU kernels: generic | avx2 | avx512 | avx512_bf16 | amx; default: the best this CPU has");
  command.add_option("--kernel", executor.forced_kernels,
                     "force a kernel, op:name (`nereid inspect` lists them); may be repeated");
  command.add_flag("--random-weights", executor.random_weights,
                   "benchmarks only: random weights for a config.json without weight files");
  command.add_option("--cache-dir", executor.cache_dir,
                     "where built engines are kept; default: ~/.cache/nereid");
  command.add_option("--log-level", log_level, "debug | info | warn | error | off")
      ->capture_default_str();
}

Status ModelOptions::finish() {
  RETURN_IF_ERROR(set_log_level(log_level));
  if (kv_cache_tokens > 0) executor.kv_cache.max_tokens = kv_cache_tokens;
  return ok();
}

int fail(const Status& status) {
  std::fprintf(stderr, "nereid: %s\n", std::string(message(status)).c_str());
  return 1;
}

}  // namespace nereid::cli
