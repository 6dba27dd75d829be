#include "convert/trtllm_checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "convert/pretty_json.h"
#include "convert/weight_source.h"
#include "io/safetensors_writer.h"
#include "models/trtllm.h"

namespace nereid::convert {
namespace {

constexpr size_t kCopyElements = size_t{1} << 20;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "tekken.json",
                                           "tiktoken.model",
                                           "qwen.tiktoken",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           "generation_config.json"};

struct Target {
  const char* name;
  DType type;
};
constexpr Target kTargets[] = {
    {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};

StatusOr<Target> choose(const std::string& dtype, const io::Checkpoint& checkpoint) {
  for (const Target& target : kTargets)
    if (dtype == target.name) return target;
  if (dtype != "auto")
    return invalid_argument("dtype: '{}' is not one of auto, bfloat16, float16, float32",
                            dtype.substr(0, 40));
  const auto is_half = [](const io::Checkpoint::Entry& entry) {
    return entry.tensor->type == DType::kF16;
  };
  return kTargets[std::all_of(checkpoint.entries().begin(), checkpoint.entries().end(), is_half)];
}

// Rounds to nearest even; false when the value is too large.
bool to_half(float value, uint16_t& out) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return false;
  if (magnitude < 0x1p-14f) {  // a multiple of 2^-24; addition rounds
    const float steps = std::nearbyint(magnitude * 0x1p24f);
    out = sign | static_cast<uint16_t>(steps);
    return true;
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
  out = sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
  return true;
}

// Copies tensors into the writer, `kCopyElements` at a time.
class TensorCopier {
 public:
  TensorCopier(const io::Checkpoint& checkpoint, DType to, io::SafetensorsWriter& writer)
      : checkpoint_(checkpoint), to_(to), writer_(writer) {}

  Status copy(const std::string& name) {
    const io::Checkpoint::Entry* entry = checkpoint_.find(name);
    if (!entry) return internal_error("tensor '{}' is missing", name);
    const io::StoredTensor& tensor = *entry->tensor;
    const size_t count = tensor.data.size() / size_of(*tensor.type);
    for (size_t first = 0; first < count; first += kCopyElements) {
      const size_t n = std::min(kCopyElements, count - first);
      if (const size_t bad = convert(tensor, first, n); bad != n)
        return invalid_argument("{}: tensor '{}': element {} is {}, which {} cannot hold",
                                entry->file->path().string(), name, first + bad, values_[bad],
                                nereid::name_of(to_));
      RETURN_IF_ERROR(writer_.append(bytes_));
    }
    return ok();
  }

 private:
  // The position of the first element that does not fit, or n.
  size_t convert(const io::StoredTensor& tensor, size_t first, size_t n) {
    values_.resize(n);
    read_floats(tensor, first, values_);
    const auto bad = std::find_if_not(values_.begin(), values_.end(),
                                      [](float value) { return std::isfinite(value); });
    if (bad != values_.end()) return static_cast<size_t>(bad - values_.begin());
    bytes_.resize(n * size_of(to_));
    for (size_t i = 0; i < n; ++i) {
      std::byte* const out = bytes_.data() + i * size_of(to_);
      if (to_ == DType::kF32) {
        std::memcpy(out, &values_[i], 4);
      } else if (to_ == DType::kF16) {
        uint16_t half = 0;
        if (!to_half(values_[i], half)) return i;
        std::memcpy(out, &half, 2);
      } else {
        const BF16 value = to_bf16(values_[i]);
        if ((value.bits & 0x7f80u) == 0x7f80u) return i;
        std::memcpy(out, &value, 2);
      }
    }
    return n;
  }

  const io::Checkpoint& checkpoint_;
  const DType to_;
  io::SafetensorsWriter& writer_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

io::TensorInfo info_of(const models::TrtLlmTensor& tensor, const io::Checkpoint& checkpoint,
                       DType type) {
  io::TensorInfo info{tensor.name, type, checkpoint.find(tensor.parts[0])->tensor->shape};
  for (size_t i = 1; i < tensor.parts.size(); ++i)
    info.shape[0] += checkpoint.find(tensor.parts[i])->tensor->shape[0];
  return info;
}

Status write_tensors(const models::Model& model, const io::Checkpoint& checkpoint, DType type,
                     const std::filesystem::path& path, ConvertReport& report) {
  ASSIGN_OR_RETURN(const auto tensors, models::trtllm_tensors(model));
  std::vector<io::TensorInfo> infos;
  for (const models::TrtLlmTensor& tensor : tensors) {
    infos.push_back(info_of(tensor, checkpoint, type));
    report.bytes += infos.back().bytes();
  }
  report.num_tensors = tensors.size();
  ASSIGN_OR_RETURN(io::SafetensorsWriter writer, io::SafetensorsWriter::create(path, infos));
  TensorCopier copier(checkpoint, type, writer);
  for (const models::TrtLlmTensor& tensor : tensors)
    for (const std::string& part : tensor.parts) RETURN_IF_ERROR(copier.copy(part));
  return writer.finish();
}

}  // namespace

Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) return ok();
  for (const char* name : kTokenizerFiles) {
    if (!std::filesystem::is_regular_file(from / name, error)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) return unavailable("{}: {}", (to / name).string(), error.message());
  }
  return ok();
}

StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.model_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also model_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.model_dir));
  if (!model.family->trtllm_layout)
    return invalid_argument("{}: architecture '{}' cannot be written in the TensorRT-LLM layout",
                            options.model_dir.string(), model.family->architecture);
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(model, options.model_dir));
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, model.family->ignores));
  ASSIGN_OR_RETURN(const Target target, choose(options.dtype, checkpoint));
  std::filesystem::create_directories(options.output_dir, error);
  if (error) return unavailable("{}: {}", options.output_dir.string(), error.message());
  ConvertReport report{.dtype = target.name};
  if (!options.config_only)
    RETURN_IF_ERROR(write_tensors(model, checkpoint, target.type,
                                  options.output_dir / models::kRank0Tensors, report));
  RETURN_IF_ERROR(copy_tokenizer(options.model_dir, options.output_dir));
  RETURN_IF_ERROR(write_file_atomic(options.output_dir / "config.json",
                                    pretty_json(models::trtllm_config(model, target.name))));
  return report;
}

}  // namespace nereid::convert
