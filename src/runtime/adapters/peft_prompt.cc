// Prompt tuning and p-tuning in the format of Hugging Face PEFT: adapter_config.json and one matrix
// (p-tuning: the encoder's output). Source: utils/save_and_load.py of huggingface/peft.
#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "io/checkpoint.h"
#include "io/numbers.h"
#include "models/config.h"
#include "runtime/adapters/adapter.h"
#include "runtime/adapters/peft_files.h"
#include "runtime/requests/request_check.h"

namespace nereid::runtime {

StatusOr<std::optional<PeftPrompt>> read_peft_prompt(const ReadFolder& directory) {
  constexpr int64_t kMost = 1 << 20;
  constexpr auto kMostNumbers = static_cast<int64_t>(kMaxPromptTableBytes / sizeof(uint16_t));
  ASSIGN_OR_RETURN(const json::object object, read_peft_config(directory));
  models::Config config(object, (directory.path() / "adapter_config.json").string());
  const std::string kind = config.string("peft_type", "LORA");
  if (kind != "PROMPT_TUNING" && kind != "P_TUNING") return std::optional<PeftPrompt>();
  PeftPrompt prompt{
      .rows = config.integer("num_virtual_tokens", 1, kMost), .width = 0, .numbers = {}};
  if (config.has("num_transformer_submodules")) config.require("num_transformer_submodules", 1);
  RETURN_IF_ERROR(config.status());
  ASSIGN_OR_RETURN(const io::TensorFile file, open_peft_tensors(directory));
  const std::filesystem::path& path = file.path();
  const auto found =
      std::ranges::find(file.tensors(), "prompt_embeddings", &io::StoredTensor::name);
  if (found == file.tensors().end())
    return invalid_argument("{}: has no tensor 'prompt_embeddings'", path.string());
  if (found->shape.size() != 2 || found->shape[0] != prompt.rows || found->shape[1] < 1 ||
      found->shape[1] > kMost)
    return invalid_argument(
        "{}: 'prompt_embeddings' {} is not [{}, width], with num_virtual_tokens", path.string(),
        found->shape_text(), prompt.rows);
  prompt.width = found->shape[1];
  if (prompt.rows * prompt.width > kMostNumbers)
    return invalid_argument("{}: 'prompt_embeddings' {} has more than {} numbers", path.string(),
                            found->shape_text(), kMostNumbers);
  auto numbers = io::numbers_of(*found);
  if (!numbers.ok()) return annotate(numbers.status(), path.string() + ": 'prompt_embeddings'");
  prompt.numbers = *std::move(numbers);
  if (file.is_lost())
    return invalid_argument("{}: became smaller while it was read", path.string());
  if (!std::ranges::all_of(prompt.numbers,
                           [](float x) { return std::isfinite(to_float(to_bf16(x))); }))
    return invalid_argument("{}: 'prompt_embeddings': a number is not finite as bf16",
                            path.string());
  return prompt;
}

std::shared_ptr<const Adapter> prompt_adapter(uint64_t task_id, const PeftPrompt& prompt) {
  Adapter adapter{.task_id = task_id};
  adapter.prompt.width = static_cast<int32_t>(prompt.width);
  for (const float x : prompt.numbers) adapter.prompt.values.push_back(to_bf16(x).bits);
  const auto values = std::span(adapter.prompt.values);
  adapter.key = std::max<uint64_t>(
      hash64(values.data(), values.size_bytes(), hash64(&task_id, sizeof(task_id))), 1);
  return std::make_shared<const Adapter>(std::move(adapter));
}

}  // namespace nereid::runtime
