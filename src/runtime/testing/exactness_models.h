// Test only: executors with steps in another process, drafts from a test, or slow onboards.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "io/safetensors.h"
#include "kernels/open.h"
#include "runtime/engine_limits.h"
#include "runtime/model_instance.h"
#include "runtime/testing/late_runner.h"
#include "runtime/testing/process_runner.h"

namespace nereid::runtime::exactness {

// A folder with an adapter of the shipped model's embedding, random numbers.
inline std::filesystem::path write_embedding_adapter() {
  constexpr int64_t kRank = 2, kVocabulary = 4096, kHidden = 256;
  const auto dir = std::filesystem::path(testing::TempDir()) / "nereid_embedding_adapter";
  std::filesystem::create_directories(dir);
  const auto tensor = [](const char* name, std::vector<int64_t> shape, std::vector<BF16>& numbers) {
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i)
      numbers.push_back(to_bf16(std::sin(static_cast<float>(i * i % 1009)) / 4));
    return io::StoredTensor{.name = std::string("base_model.model.model.embed_tokens.") + name,
                            .dtype = "BF16",
                            .type = DType::kBF16,
                            .shape = std::move(shape),
                            .data = std::as_bytes(std::span(numbers))};
  };
  std::vector<BF16> a, b;
  const io::StoredTensor tensors[] = {tensor("lora_embedding_A", {kRank, kVocabulary}, a),
                                      tensor("lora_embedding_B", {kHidden, kRank}, b)};
  std::ofstream(dir / "adapter_config.json") << R"({"peft_type":"LORA","r":2,"lora_alpha":4})";
  std::ofstream(dir / "adapter_model.safetensors", std::ios::binary)
      << io::serialize_safetensors(tensors);
  return dir;
}

// Task ids 1 to 3, which fit on the device together.
inline void add_adapters(ExecutorConfig& c) {
  static const std::filesystem::path embedding = write_embedding_adapter();
  const std::filesystem::path dir = std::filesystem::path(source_dir()) / "tests/adapters";
  c.enable_lora = true;
  c.lora_directories = {{1, dir / "upper"}, {2, dir / "thanks"}, {3, embedding}};
  c.peft_cache.num_device_module_layers = 12;
}

inline StatusOr<std::filesystem::path> engine_of(const std::filesystem::path& dir,
                                                 const ExecutorConfig& config,
                                                 const ModelInstance& model) {
  ASSIGN_OR_RETURN(const auto build, build_options(dir, config, model.device));
  return convert::ensure_engine(dir, model.device.registry, model.device.device->info(), build);
}

// An engine of `dir` with weights of `format` in its products.
inline StatusOr<std::filesystem::path> engine_with(const std::filesystem::path& dir,
                                                   const ExecutorConfig& config,
                                                   const kernels::WeightFormat& format) {
  ASSIGN_OR_RETURN(const auto opened, kernels::open_device(config.device, {.num_threads = 1}));
  ASSIGN_OR_RETURN(auto build, build_options(dir, config, opened));
  build.compile.weights = format;
  return convert::ensure_engine(dir, opened.registry, opened.device->info(), build);
}

// `has_trees`: the runner supports draft trees.
inline StatusOr<ModelInstance> open_local(const std::filesystem::path& dir, ExecutorConfig& config,
                                          bool has_trees) {
  ASSIGN_OR_RETURN(const convert::EngineLimits limits, apply_engine_limits(dir, config));
  ASSIGN_OR_RETURN(ModelInstance model, open_model(dir, config, has_trees));
  model.limits = limits;
  return model;
}

// A model whose steps run in another process.
inline StatusOr<ModelInstance> open_remote(const std::filesystem::path& dir, ExecutorConfig& config,
                                           bool has_trees = false) {
  ASSIGN_OR_RETURN(ModelInstance model, open_local(dir, config, has_trees));
  ASSIGN_OR_RETURN(const auto engine, engine_of(dir, config, model));
  ASSIGN_OR_RETURN(model.runner, make_process_runner(*model.runner, engine, config));
  return model;
}

inline StatusOr<std::unique_ptr<Executor>> create_executor(const std::filesystem::path& dir,
                                                           ExecutorConfig config, bool remote,
                                                           std::unique_ptr<Proposer> proposer,
                                                           bool late = false) {
  if (!remote && !proposer && !late) return Executor::create(dir, config);
  const bool has_trees = proposer && proposer->makes_trees();
  ASSIGN_OR_RETURN(ModelInstance model, remote ? open_remote(dir, config, has_trees)
                                               : open_local(dir, config, has_trees));
  if (proposer) model.proposer = std::move(proposer);
  if (late) model.runner = std::make_unique<LateRunner>(std::move(model.runner));
  return make_executor(std::move(model), config);
}

}  // namespace nereid::runtime::exactness
