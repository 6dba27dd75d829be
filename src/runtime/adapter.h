// An adapter as a device takes it (LoRA), or the rows that it puts in front of a prompt, and where
// it comes from.
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
#include "runtime/base_weights.h"
#include "tensor/dtype.h"

namespace nereid::runtime {

struct Adapter {
  uint64_t task_id = 0;
  uint64_t key = 0;  // of its contents and its id, not 0
  std::vector<exec::AdapterMatrix> matrices;
  std::vector<BF16> weights;  // see exec::StepArrays::adapter_weights
  int32_t num_pages = 0;      // that it takes on the device
  PromptTable prompt;         // rows in front of the tokens; then there is nothing else

  size_t bytes() const {
    return prompt.values.size() * sizeof(uint16_t) + weights.size() * sizeof(BF16) +
           matrices.size() * sizeof(exec::AdapterMatrix);
  }
};

// What adapters must fit.
struct AdapterBounds {
  std::vector<io::AdapterModule> modules;  // of the engine; none: it takes no adapters
  int32_t max_rank = 0;
  std::shared_ptr<const BaseWeights> base = nullptr;  // of the engine; null: DoRA is refused
  int64_t page_numbers = 0;                           // see exec::RunnerLimits; 0: no pages
  int32_t num_pages = 0;                              // of the device
};

// From the tensors of a request. InvalidArgument naming the row of the config and the numbers.
StatusOr<std::shared_ptr<const Adapter>> adapter_of(const LoraConfig& lora,
                                                    const AdapterBounds& bounds);

// From a directory with adapter_config.json (PEFT), else of hf_lora_convert.py. NotFound: it is
// neither; InvalidArgument: a file of it cannot be read, lies outside the directory's root, or as
// of those below.
StatusOr<std::shared_ptr<const Adapter>> read_adapter(const LoraDirectory& directory,
                                                      const AdapterBounds& bounds);

// What prompt tuning or p-tuning has learned.
struct PeftPrompt {
  int64_t rows = 0, width = 0;
  std::vector<float> numbers;  // [rows, width], as many as a prompt table may have
};

// From a PEFT directory; nothing: it is of another kind. InvalidArgument naming file and field or
// tensor.
StatusOr<std::optional<PeftPrompt>> read_peft_prompt(const ReadFolder& directory);
std::shared_ptr<const Adapter> prompt_adapter(uint64_t task_id, const PeftPrompt& prompt);

// From a PEFT directory of LoRA: rank and alpha with their patterns, rsLoRA, DoRA. InvalidArgument
// naming file and field or tensor: what changes more than products of whole matrices (biases,
// embeddings, modules_to_save, ...), or does not fit.
StatusOr<std::shared_ptr<const Adapter>> read_peft_adapter(const LoraDirectory& directory,
                                                           const AdapterBounds& bounds);

// What hf_lora_convert.py makes of a PEFT directory: tensors as requests bring them, without a task
// id, the scale in the second matrices. InvalidArgument naming file and field or tensor: likewise,
// a module that TensorRT-LLM has no number for, or DoRA, whose tensors depend on the model.
StatusOr<LoraConfig> convert_peft_adapter(const std::filesystem::path& directory);

// From a directory of TensorRT-LLM's hf_lora_convert.py: model.lora_weights.npy and
// model.lora_config.npy. InvalidArgument naming the file.
StatusOr<std::shared_ptr<const Adapter>> read_converted_adapter(const LoraDirectory& directory,
                                                                const AdapterBounds& bounds);

}  // namespace nereid::runtime
