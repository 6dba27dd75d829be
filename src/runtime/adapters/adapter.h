// Adapters (LoRA weights, or prompt-tuning rows) and their sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "exec/step_message.h"
#include "io/plan.h"
#include "nereid/config.h"
#include "nereid/request.h"
#include "runtime/adapters/base_weights.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

struct Adapter {
  uint64_t task_id = 0;
  uint64_t key = 0;  // nonzero hash of contents and id
  std::vector<exec::LoraMatrixInfo> matrices;
  std::vector<BF16> weights;  // see exec::StepArrays::adapter_weights
  int32_t num_pages = 0;      // on the device
  PromptTable prompt;         // prompt tuning: rows in front of the prompt; excludes LoRA matrices

  size_t bytes() const {
    return prompt.values.size() * sizeof(uint16_t) + weights.size() * sizeof(BF16) +
           matrices.size() * sizeof(exec::LoraMatrixInfo);
  }
};

// Limits of the model and the device for adapters.
struct AdapterBounds {
  std::vector<io::AdapterModule> modules;  // modules of the engine; empty: no adapters
  int32_t max_rank = 0;
  std::shared_ptr<const BaseWeights> base = nullptr;  // of the engine; null: DoRA is refused
  int64_t page_numbers = 0;                           // see exec::RunnerLimits; 0: no pages
  int32_t num_pages = 0;                              // of the device
};

// From the tensors of a request. InvalidArgument with the config row and the numbers.
StatusOr<std::shared_ptr<const Adapter>> adapter_of(const LoraConfig& lora,
                                                    const AdapterBounds& bounds);

// From a directory with adapter_config.json (PEFT), else in the format of hf_lora_convert.py.
// NotFound: neither; InvalidArgument: a file is unreadable, outside the root, or as below.
StatusOr<std::shared_ptr<const Adapter>> read_adapter(const LoraDirectory& directory,
                                                      const AdapterBounds& bounds);

// Learned rows of prompt tuning or p-tuning.
struct PeftPrompt {
  int64_t rows = 0, width = 0;
  std::vector<float> numbers;  // [rows, width], within the bounds of prompt tables
};

// From a PEFT directory; no value: another kind. InvalidArgument with file and field or tensor.
StatusOr<std::optional<PeftPrompt>> read_peft_prompt(const ReadFolder& directory);
std::shared_ptr<const Adapter> prompt_adapter(uint64_t task_id, const PeftPrompt& prompt);

// LoRA from a PEFT directory: rank and alpha with their patterns, rsLoRA, DoRA. InvalidArgument
// with file and field or tensor: parts such as biases, embeddings, modules_to_save; wrong shapes.
StatusOr<std::shared_ptr<const Adapter>> read_peft_adapter(const LoraDirectory& directory,
                                                           const AdapterBounds& bounds);

// Result of hf_lora_convert.py for a PEFT directory: request tensors without a task id, scale
// folded into the second matrices. InvalidArgument as above, also for modules without a
// TensorRT-LLM number and for DoRA, whose tensors depend on the model.
StatusOr<LoraConfig> convert_peft_adapter(const std::filesystem::path& directory);

// From the files of TensorRT-LLM's hf_lora_convert.py: model.lora_weights.npy and
// model.lora_config.npy. InvalidArgument with the file.
StatusOr<std::shared_ptr<const Adapter>> read_converted_adapter(const LoraDirectory& directory,
                                                                const AdapterBounds& bounds);

}  // namespace nereid::runtime
