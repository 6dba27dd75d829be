// Adapters of TensorRT-LLM's hf_lora_convert.py: the tensors of a request as NumPy arrays.
#include <algorithm>
#include <map>
#include <utility>

#include "base/copy_bytes.h"
#include "base/mapped_file.h"
#include "io/npy.h"
#include "runtime/adapters/adapter.h"
#include "runtime/adapters/lora_module_names.h"
#include "tensor/floats.h"

namespace nereid::runtime {
namespace {

constexpr char kWeightsFile[] = "model.lora_weights.npy";

// Rows: module id, layer, rank and, since TensorRT-LLM 0.17, is_dora.
Status read_config(const io::NpyArray& array, LoraConfig& lora) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  const int64_t columns = array.shape.empty() ? 0 : array.shape.back();
  if (array.type != "<i4") return invalid_argument("elements of type {}, not <i4", array.type);
  if (array.data.size() > kMaxBytes)
    return invalid_argument("{} bytes, at most {} are allowed", array.data.size(), kMaxBytes);
  if (columns != 3 && columns != 4)
    return invalid_argument("must have 3 or 4 columns: module id, layer, rank, DoRA");
  lora.columns = static_cast<int32_t>(columns);
  lora.config.resize(array.data.size() / sizeof(int32_t));
  copy_bytes(lora.config.data(), array.data.data(), lora.config.size() * sizeof(int32_t));
  return ok();
}

// Maximum length of a row in this model: the experts of a layer together.
int64_t longest_row(const AdapterBounds& bounds) {
  std::map<std::pair<int32_t, int32_t>, int64_t> lengths;
  int64_t longest = 0;
  for (const io::AdapterModule& m : bounds.modules)
    if (const auto id = lora_module_of(m.name)) {
      int64_t& length = lengths[{id->id, id->layer}];
      length += bounds.max_rank * (m.k + m.n) + m.n;
      longest = std::max(longest, length);
    }
  return longest;
}

// One row per row of the config.
Status read_weights(const io::NpyArray& array, const AdapterBounds& bounds, LoraConfig& lora) {
  const auto rows = static_cast<int64_t>(lora.config.size()) / lora.columns;
  const size_t bytes = array.type == "<f4" ? 4 : 2;
  const auto numbers = static_cast<int64_t>(array.data.size() / bytes);
  if (rows > std::ssize(bounds.modules))
    return invalid_argument("{} rows, but the model has {} modules", rows, bounds.modules.size());
  if (const int64_t most = rows * longest_row(bounds); numbers > most)
    return invalid_argument(
        "{} numbers in {} rows; this model's adapters have at most {} (max_adapter_size {})",
        numbers, rows, most, bounds.max_rank);
  if (array.type == "<f2") {
    lora.weights = floats_of<F16>(array.data);
  } else if (array.type == "<f4") {
    lora.weights = floats_of<float>(array.data);
  } else if (array.type == "|V2") {
    lora.weights = floats_of<BF16>(array.data);
  } else {
    return invalid_argument("elements of type {}; allowed are <f2, <f4 and |V2 (bf16)", array.type);
  }
  return ok();
}

template <class Read>
Status read_array(const ReadFolder& folder, const char* name, const Read& read) {
  ASSIGN_OR_RETURN(const OpenFile opened, folder.open(name));
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(opened));
  const auto array = io::parse_npy(file.bytes());
  Status status = array.ok() ? read(*array) : array.status();
  if (status.ok() && file.is_lost()) status = invalid_argument("became smaller while it was read");
  return status.ok() ? ok() : annotate(status, opened.path().string());
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_converted_adapter(const LoraDirectory& directory,
                                                                const AdapterBounds& bounds) {
  LoraConfig lora{.task_id = directory.task_id};
  const ReadFolder folder(directory.path, directory.root);
  RETURN_IF_ERROR(read_array(folder, "model.lora_config.npy",
                             [&](const io::NpyArray& array) { return read_config(array, lora); }));
  RETURN_IF_ERROR(read_array(folder, kWeightsFile, [&](const io::NpyArray& array) {
    return read_weights(array, bounds, lora);
  }));
  auto adapter = adapter_of(lora, bounds);
  if (!adapter.ok()) return annotate(adapter.status(), directory.path.string());
  return adapter;
}

namespace {

StatusOr<std::shared_ptr<const Adapter>> read_any(const LoraDirectory& directory,
                                                  const AdapterBounds& bounds) {
  const ReadFolder folder(directory.path, directory.root);
  if (folder.has("adapter_config.json")) {
    ASSIGN_OR_RETURN(const auto prompt, read_peft_prompt(folder));
    if (prompt) return prompt_adapter(directory.task_id, *prompt);
    return read_peft_adapter(directory, bounds);
  }
  if (folder.has(kWeightsFile)) return read_converted_adapter(directory, bounds);
  return not_found("{}: has neither adapter_config.json (PEFT) nor {} (hf_lora_convert.py)",
                   directory.path.string(), kWeightsFile);
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> read_adapter(const LoraDirectory& directory,
                                                      const AdapterBounds& bounds) {
  auto adapter = read_any(directory, bounds);
  // All faults of the files are the caller's: InvalidArgument.
  const bool is_fault_of_file = !adapter.ok() && !absl::IsNotFound(adapter.status());
  if (is_fault_of_file) return invalid_argument("{}", message(adapter.status()));
  return adapter;
}

}  // namespace nereid::runtime
