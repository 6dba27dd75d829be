// hf_lora_convert.py: a PEFT directory of a LoRA adapter becomes the two tensors of a request to
// the tensorrt_llm model, as NumPy files; one of prompt tuning or p-tuning its prompt table.
#include <cmath>

#include "base/file.h"
#include "cli/flags/arg_table.h"
#include "cli/tools/tools.h"
#include "io/npy.h"
#include "runtime/adapters/adapter.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum config::Use;

constexpr ArgFlag kLoraFlags[] = {
    {"--in-file,-i", kText, kActed, "", "", "folder of the adapter in PEFT's format"},
    {"--out-dir,-o", kText, kActed, "", "", "folder that the .npy files are written to"},
    {"--storage-type,-t", kChoice, kActed, "float32|float16|bfloat16", "float16",
     "type of the weights in the files"},
    {"--verbose", kFlag, kIgnored, "", "", "more text"},
};

// The numbers as bytes of `type`; InvalidArgument: one is out of range.
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

// NumPy's type name; it has no bfloat16.
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

Status convert_prompt(const runtime::PeftPrompt& prompt, const std::filesystem::path& to,
                      const std::string& type) {
  ASSIGN_OR_RETURN(const std::string bytes, bytes_of(prompt.numbers, type));
  return write_file_atomic(
      to / "model.prompt_table.npy",
      io::serialize_npy(
          {npy_type(type), {1, prompt.rows, prompt.width}, std::as_bytes(std::span(bytes))}));
}

Status convert_adapter(const Args& args) {
  for (const char* flag : {"--in-file", "--out-dir"})
    if (!args.given(flag)) return invalid_argument("{}: is missing; give a directory", flag);
  std::filesystem::path from = args.text("--in-file");
  if (from.has_extension() && from.stem() == "adapter_model") from = from.parent_path();
  const std::filesystem::path to = args.text("--out-dir");
  const std::string& type = args.text("--storage-type");
  ASSIGN_OR_RETURN(const auto prompt, runtime::read_peft_prompt(from));
  if (prompt) return convert_prompt(*prompt, to, type);
  return convert_lora(from, to, type);
}

}  // namespace

int hf_lora_convert_main(int argc, char** argv) {
  return run_tool({"hf_lora_convert.py", kLoraFlags}, argc, argv, convert_adapter);
}

}  // namespace nereid::cli
