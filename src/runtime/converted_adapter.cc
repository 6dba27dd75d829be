// Adapters as TensorRT-LLM's hf_lora_convert.py writes them: the tensors of a request as NumPy
// arrays.
#include <cstring>

#include "base/mapped_file.h"
#include "io/npy.h"
#include "runtime/adapter.h"
#include "tensor/floats.h"

namespace nereid::runtime {
namespace {

constexpr char kWeightsFile[] = "model.lora_weights.npy";

// Rows of module id, layer, rank and, since TensorRT-LLM 0.17, whether it is DoRA.
Status read_config(const io::NpyArray& array, LoraConfig& lora) {
  const int64_t columns = array.shape.empty() ? 0 : array.shape.back();
  if (columns != 3 && columns != 4)
    return invalid_argument("has not 3 or 4 columns: module id, layer, rank, DoRA");
  lora.columns = static_cast<int32_t>(columns);
  lora.config.resize(array.data.size() / sizeof(int32_t));
  std::memcpy(lora.config.data(), array.data.data(), lora.config.size() * sizeof(int32_t));
  return ok();
}

Status read_array(const std::filesystem::path& path, LoraConfig& lora) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto read = [&]() -> Status {
    ASSIGN_OR_RETURN(const io::NpyArray array, io::parse_npy(file.bytes()));
    if (array.type == "<f2") {
      lora.weights = floats_of<F16>(array.data);
    } else if (array.type == "<f4") {
      lora.weights = floats_of<float>(array.data);
    } else if (array.type == "|V2") {
      lora.weights = floats_of<BF16>(array.data);
    } else if (array.type == "<i4") {
      return read_config(array, lora);
    } else {
      return invalid_argument(
          "elements of type {}; allowed are <f2, <f4 and |V2 (bf16), of a config <i4", array.type);
    }
    return ok();
  };
  const Status status = read();
  return status.ok() ? ok() : annotate(status, path.string());
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_converted_adapter(const LoraDirectory& directory,
                                                                const AdapterBounds& bounds) {
  LoraConfig lora{.task_id = directory.task_id};
  RETURN_IF_ERROR(read_array(directory.path / kWeightsFile, lora));
  RETURN_IF_ERROR(read_array(directory.path / "model.lora_config.npy", lora));
  auto adapter = adapter_of(lora, bounds);
  if (!adapter.ok()) return annotate(adapter.status(), directory.path.string());
  return adapter;
}

StatusOr<std::shared_ptr<const Adapter>> read_adapter(const LoraDirectory& directory,
                                                      const AdapterBounds& bounds) {
  std::error_code error;
  if (std::filesystem::exists(directory.path / "adapter_config.json", error)) {
    ASSIGN_OR_RETURN(const auto prompt, read_peft_prompt(directory.path));
    if (prompt) return prompt_adapter(directory.task_id, *prompt);
    return read_peft_adapter(directory, bounds);
  }
  if (std::filesystem::exists(directory.path / kWeightsFile, error))
    return read_converted_adapter(directory, bounds);
  return not_found("{}: has neither adapter_config.json (PEFT) nor {} (hf_lora_convert.py)",
                   directory.path.string(), kWeightsFile);
}

}  // namespace nereid::runtime
