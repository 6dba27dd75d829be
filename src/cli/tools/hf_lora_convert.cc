// hf_lora_convert.py: a PEFT directory of a LoRA adapter becomes the two tensors that requests of
// the tensorrt_llm model bring along, as NumPy files; one of prompt tuning or p-tuning their prompt
// table.
#include <bit>
#include <cmath>

#include "base/file.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/tools.h"
#include "io/npy.h"
#include "io/numbers.h"
#include "models/config.h"
#include "runtime/adapter.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum ArgUse;

constexpr ArgFlag kLoraFlags[] = {
    {"--in-file -i", kText, kActed, "", "", "folder of the adapter, as PEFT writes it"},
    {"--out-dir -o", kText, kActed, "", "", "where the .npy files go"},
    {"--storage-type -t", kChoice, kActed, "float32 float16 bfloat16", "float16", "of the weights"},
    {"--verbose", kFlag, kIgnored, "", "", ""},
};

// The numbers in their type; InvalidArgument: one is too large for it.
StatusOr<std::string> bytes_of(const std::vector<float>& numbers, const std::string& type) {
  std::string bytes;
  const auto append = [&](auto x) { bytes.append(reinterpret_cast<const char*>(&x), sizeof(x)); };
  for (const float x : numbers) {
    if (type == "float32") {
      append(x);
    } else if (type == "bfloat16") {
      append(to_bf16(x));
    } else {
      const auto half = static_cast<_Float16>(x);
      if (std::isfinite(x) && !std::isfinite(static_cast<float>(half)))
        return invalid_argument("--storage-type: {} is too large for float16", x);
      append(half);
    }
  }
  return bytes;
}

// NumPy has no bfloat16.
const char* npy_type(const std::string& type) {
  return type == "float32" ? "<f4" : type == "float16" ? "<f2" : "|V2";
}

Status convert_lora(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::string& type) {
  ASSIGN_OR_RETURN(const LoraConfig lora, runtime::convert_peft_adapter(from));
  ASSIGN_OR_RETURN(const std::string weights, bytes_of(lora.weights, type));
  const auto rows = static_cast<int64_t>(lora.config.size() / 3);
  const auto length = static_cast<int64_t>(lora.weights.size()) / rows;
  RETURN_IF_ERROR(write_file_atomic(
      to / "model.lora_weights.npy",
      io::serialize_npy({npy_type(type), {1, rows, length}, std::as_bytes(std::span(weights))})));
  return write_file_atomic(
      to / "model.lora_config.npy",
      io::serialize_npy({"<i4", {1, rows, 3}, std::as_bytes(std::span(lora.config))}));
}

// PEFT saves what the encoder of p-tuning makes, so both are rows. Source:
// peft/utils/save_and_load.py of github.com/huggingface/peft.
Status convert_prompt(models::Config& config, const std::filesystem::path& from,
                      const std::filesystem::path& to, const std::string& type) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t rows = config.integer("num_virtual_tokens", 1, kMost);
  if (config.has("num_transformer_submodules")) config.require("num_transformer_submodules", 1);
  RETURN_IF_ERROR(config.status());
  auto path = from / "adapter_model.safetensors";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) path.replace_extension(".bin");
  ASSIGN_OR_RETURN(const io::TensorFile file, io::TensorFile::open(path));
  const io::StoredTensor* table = nullptr;
  for (const io::StoredTensor& tensor : file.tensors())
    if (tensor.name == "prompt_embeddings") table = &tensor;
  if (!table) return invalid_argument("{}: has no tensor 'prompt_embeddings'", path.string());
  if (table->shape.size() != 2 || table->shape[0] != rows)
    return invalid_argument(
        "{}: 'prompt_embeddings' {} is not [{}, width], with num_virtual_tokens", path.string(),
        table->shape_text(), rows);
  const auto numbers = io::numbers_of(*table);
  if (!numbers.ok()) return annotate(numbers.status(), path.string() + ": 'prompt_embeddings'");
  ASSIGN_OR_RETURN(const std::string bytes, bytes_of(*numbers, type));
  return write_file_atomic(
      to / "model.prompt_table.npy",
      io::serialize_npy(
          {npy_type(type), {1, rows, table->shape[1]}, std::as_bytes(std::span(bytes))}));
}

Status convert(const Args& args) {
  for (const char* flag : {"--in-file", "--out-dir"})
    if (!args.given(flag)) return invalid_argument("{}: is missing; give a directory", flag);
  std::filesystem::path from = args.text("--in-file");
  if (from.has_extension() && from.stem() == "adapter_model") from = from.parent_path();
  const std::filesystem::path to = args.text("--out-dir");
  const std::string& type = args.text("--storage-type");
  const std::filesystem::path config_path = from / "adapter_config.json";
  ASSIGN_OR_RETURN(const json::object object, models::read_object(config_path));
  models::Config config(object, config_path.string());
  const std::string kind = config.string("peft_type", "LORA");
  if (kind == "PROMPT_TUNING" || kind == "P_TUNING") return convert_prompt(config, from, to, type);
  return convert_lora(from, to, type);
}

}  // namespace

int hf_lora_convert_main(int argc, char** argv) {
  return run_tool({"hf_lora_convert.py", kLoraFlags}, argc, argv, convert);
}

}  // namespace nereid::cli
