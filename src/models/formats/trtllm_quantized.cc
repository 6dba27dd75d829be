// Quantised TensorRT-LLM checkpoints: `quantization` of config.json, and the tensors next to a
// module's weight. Source: tensorrt_llm/quantization/{mode,layers}.py of NVIDIA/TensorRT-LLM.
//
// W8A16, W4A16 and GPTQ integers are stored in the order of one GPU architecture's kernels, which
// cannot be undone elsewhere. Our field `"weight_layout": "row_major"` in `quantization` marks
// row-major order: [out, in]; 4 bits: rows 2 i in the low halves of bytes [out / 2, in].
//
// W4A8_AWQ equals W4A16_AWQ for the weights: its loader divides scales by weights_scaling_factor_2,
// so that they fit into eight bits, and multiplies results by it.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"
#include "io/quantized_tensors.h"
#include "models/formats/trtllm.h"

namespace nereid::models {
namespace {

using io::StoredTensor;

constexpr std::string_view kNoQuant = "NO_QUANT";

struct Algorithm {
  std::string_view name;
  std::string_view scales;
  DType type;  // of the stored numbers; kU8: signed integers with group scales, 4-bit ones in pairs
  bool needs_row_major = false;
  bool byte_inputs = false;
  int32_t bits = 4;      // of kU8
  bool offsets = false;  // has `zero`; scales and zeros are [groups, out]
  bool fixed = false;    // scales are multiplied by the fixed scales of input and result
  bool e2m1 = false;     // of kU8: 4-bit floats, [out, in / 2], with a global scale
  std::string_view activations = "";  // activation type in TensorRT-LLM, ignored here
};
constexpr Algorithm kAlgorithms[] = {
    {"W8A16", ".per_channel_scale", DType::kI8, true},
    {"W4A16", ".per_channel_scale", DType::kU8, true},
    {"W4A16_AWQ", ".weights_scaling_factor", DType::kU8},
    {.name = "W4A8_AWQ",
     .scales = ".weights_scaling_factor",
     .type = DType::kU8,
     .activations = "f8e4m3"},
    {"W4A16_GPTQ", ".weights_scaling_factor", DType::kU8, true, false, 4, true},
    {"W8A16_GPTQ", ".weights_scaling_factor", DType::kU8, true, false, 8, true},
    {"W8A8_SQ_PER_CHANNEL", ".weights_scaling_factor", DType::kI8, false, true},
    {"W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", ".per_channel_scale", DType::kI8, false, true},
    {"W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN", ".per_channel_scale", DType::kI8, false, true},
    {"W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN", ".per_channel_scale", DType::kI8, false, true, 8,
     false, true},
    {"W8A8_SQ_PER_TENSOR_PLUGIN", ".per_channel_scale", DType::kI8, false, true, 8, false, true},
    {"FP8", ".weights_scaling_factor", DType::kF8E4M3},
    {"FP8_PER_CHANNEL_PER_TOKEN", ".per_channel_scale", DType::kF8E4M3},
    {.name = "NVFP4",
     .scales = ".weights_scaling_factor",
     .type = DType::kU8,
     .e2m1 = true,
     .activations = "nvfp4"}};

// NVFP4 names of its loader.
constexpr std::string_view kBlockScales = ".weights_block_scaling_factor";
constexpr std::string_view kFactorOfAll = ".weights_global_scaling_factor";

// Tensors that belong to a module's weight.
constexpr std::string_view kParts[] = {".per_channel_scale",
                                       ".weights_scaling_factor",
                                       ".weights_scaling_factor_2",
                                       kBlockScales,
                                       kFactorOfAll,
                                       ".zero",
                                       ".smoother",
                                       ".prequant_scaling_factor"};
// Scales of activations and caches, which are per token here.
constexpr std::string_view kLeftOut[] = {".activation_scaling_factor",
                                         ".activation_global_scaling_factor",
                                         ".alpha",
                                         ".act_scale",
                                         ".scale_to_int",
                                         ".quantization_scaling_factor",
                                         ".kv_cache_scaling_factor",
                                         ".kv_cache_rcp_scaling_factor",
                                         ".k_cache_scaling_factor",
                                         ".v_cache_scaling_factor"};

// Modules with weight-only quantisation, and the factor tensors of SmoothQuant's plugins.
constexpr std::string_view kWeightOnly[] = {"attention.qkv", "attention.dense", "mlp.fc",
                                            "mlp.gate", "mlp.proj"};
constexpr std::string_view kInputFactors[] = {
    "input_layernorm.scale_to_int", "attention.quantization_scaling_factor",
    "post_layernorm.scale_to_int", "post_layernorm.scale_to_int",
    "mlp.quantization_scaling_factor"};

// "a.weight@rank1" -> ("a.weight", "@rank1").
std::pair<std::string_view, std::string_view> split_rank(std::string_view name) {
  const size_t at = std::min(name.rfind("@rank"), name.size());
  return {name.substr(0, at), name.substr(at)};
}

class RankJoiner {
 public:
  RankJoiner(const Algorithm& algorithm, bool row_major, int64_t group, const TensorShapes& shapes,
             const io::Checkpoint& checkpoint)
      : algorithm_(algorithm),
        row_major_(row_major),
        group_(group),
        shapes_(shapes),
        checkpoint_(checkpoint) {}

  Status join(const StoredTensor& tensor) {
    const auto [name, rank] = split_rank(tensor.name);
    rank_ = rank;
    if (is_quantization_part(name)) {  // joined with its weight, or of an unquantised one
      stem_ = name.substr(0, name.rfind('.'));
      const StoredTensor* weight = find(".weight");
      const auto used = parts();
      if (!weight || !is_coded(*weight) || std::ranges::find(used, &tensor) == used.end())
        joined_.push_back({{tensor.name}, std::nullopt});
      return ok();
    }
    if (!is_coded(tensor)) return ok();
    if (!name.ends_with(".weight")) return refuse(tensor);
    stem_ = name.substr(0, name.size() - std::string_view(".weight").size());
    ASSIGN_OR_RETURN(StoredTensor whole, matrix(tensor));
    const std::vector<int64_t>& wanted = shapes_.find(tensor.name)->second;
    if (whole.shape != wanted)
      return invalid_argument("tensor '{}' stands for a matrix {}, config.json asks for [{}]",
                              tensor.name, whole.shape_text(), fmt::join(wanted, ", "));
    io::Checkpoint::Joined& out = joined_.emplace_back();
    out.parts = {tensor.name};
    for (const StoredTensor* part : parts())
      if (part) out.parts.push_back(part->name);
    out.whole = std::move(whole);
    return ok();
  }
  std::vector<io::Checkpoint::Joined> joined() && { return std::move(joined_); }

 private:
  static bool is_coded(const StoredTensor& t) {
    return t.type != DType::kF32 && t.type != DType::kBF16 && t.type != DType::kF16;
  }
  const StoredTensor* find(std::string_view part) const {
    const auto* entry = checkpoint_.find(fmt::format("{}{}{}", stem_, part, rank_));
    return entry ? entry->tensor : nullptr;
  }
  const StoredTensor* scales() const {
    const StoredTensor* blocks = algorithm_.e2m1 ? find(kBlockScales) : nullptr;
    return blocks ? blocks : find(algorithm_.scales);
  }
  const StoredTensor* factor_of_all() const {
    if (!algorithm_.e2m1) return nullptr;
    const StoredTensor* renamed = find(kFactorOfAll);
    return renamed ? renamed : find(".weights_scaling_factor_2");
  }
  const StoredTensor* offsets() const { return algorithm_.offsets ? find(".zero") : nullptr; }
  // Factor of an input's columns (divisor for SmoothQuant's plugins).
  const StoredTensor* inputs() const {
    const StoredTensor* factors = find(".prequant_scaling_factor");
    return factors ? factors : find(".smoother");
  }
  // Further tensors of a weight of codes.
  std::array<const StoredTensor*, 4> parts() const {
    return {scales(), factor_of_all(), inputs(), offsets()};
  }
  // Factor of a module's scales. SmoothQuant's plugins: weight scale * input scale / result scale.
  StatusOr<float> factor() const {
    if (!algorithm_.fixed) return 1.0f;
    const auto* const module = std::ranges::find_if(
        kWeightOnly, [&](std::string_view name) { return stem_.ends_with(name); });
    if (module == std::end(kWeightOnly)) return refuse(*find(".weight"));
    const std::string layer = stem_.substr(0, stem_.size() - module->size());
    const std::string_view input = kInputFactors[module - std::begin(kWeightOnly)];
    float product = 1;
    for (const std::string& name : {fmt::format("{}{}{}", layer, input, rank_),
                                    fmt::format("{}.act_scale{}", stem_, rank_)}) {
      const auto* entry = checkpoint_.find(name);
      if (!entry || entry->tensor->type != DType::kF32 ||
          entry->tensor->data.size() != sizeof(float))
        return invalid_argument("tensor '{}.weight': '{}', one F32, is missing", stem_, name);
      float value = 0;
      std::memcpy(&value, entry->tensor->data.data(), sizeof value);
      product *= value;
    }
    return product;
  }
  Status refuse(const StoredTensor& t) const {
    return invalid_argument("tensor '{}': has dtype {}, which does not match quant_algo '{}'",
                            t.name, t.dtype, algorithm_.name);
  }

  StatusOr<StoredTensor> matrix(const StoredTensor& tensor) const {
    const bool is_bytes = tensor.type == DType::kI8 || tensor.type == DType::kU8;
    if (!is_bytes && tensor.type != algorithm_.type) return refuse(tensor);
    if (algorithm_.needs_row_major && !row_major_)
      return unsupported(
          "tensor '{}': the integers of quant_algo '{}' have an order that only TensorRT-LLM's "
          "GPU kernels read; convert the model again with `nereid convert --use_weight_only`, "
          "which writes quantization.weight_layout 'row_major'",
          tensor.name, algorithm_.name);
    if (!scales())
      return invalid_argument("tensor '{}': has dtype {}, and '{}{}' is missing", tensor.name,
                              tensor.dtype, stem_, algorithm_.scales);
    StoredTensor data = tensor;  // fp8 may be stored as bytes, pairs as signed bytes
    data.type = algorithm_.type;
    if (algorithm_.e2m1) return four_bit_floats(data);
    if (algorithm_.type == DType::kU8) return in_groups(data);
    ASSIGN_OR_RETURN(const float all, factor());
    return io::scaled_bytes(tensor.name, {&data, scales(), nullptr, inputs()},
                            {.factor = all,
                             .byte_inputs = algorithm_.byte_inputs,
                             .divides = find(".smoother") != nullptr});
  }

  StatusOr<StoredTensor> four_bit_floats(const StoredTensor& data) const {
    StoredTensor scale = *scales();
    if (scale.type == DType::kI8 || scale.type == DType::kU8) scale.type = DType::kF8E4M3;
    if (data.shape.size() != 2 || scale.type != DType::kF8E4M3)
      return invalid_argument("tensor '{}': {} {} is not a matrix of bytes for F8_E4M3 scales",
                              data.name, data.dtype, data.shape_text());
    if (!factor_of_all())
      return invalid_argument("tensor '{}': '{}.weights_scaling_factor_2' is missing", data.name,
                              stem_);
    if (inputs())
      return unsupported("tensor '{}': quant_algo '{}' has no factors of columns", inputs()->name,
                         algorithm_.name);
    return io::e2m1_blocks(data.name, {&data, &scale, factor_of_all()});
  }

  StatusOr<StoredTensor> in_groups(const StoredTensor& data) const {
    const StoredTensor& scale = *scales();
    if (algorithm_.offsets && !offsets())
      return invalid_argument("tensor '{}': '{}.zero' is missing", data.name, stem_);
    const int64_t k = data.shape.size() == 2 ? data.shape[1] : 0;
    const size_t place = algorithm_.offsets ? 0 : 1;
    const int64_t groups = scale.shape.size() == 2 ? scale.shape[place] : 1;
    if (k < 1 || groups < 1 || k % groups != 0)
      return invalid_argument("tensor '{}': {} {} is not a matrix of bytes for scales {}",
                              data.name, data.dtype, data.shape_text(), scale.shape_text());
    const int64_t group = k / groups;
    if (group_ > 0 && groups > 1 && group != group_)
      return invalid_argument("tensor '{}': groups of {} columns, group_size is {}", data.name,
                              group, group_);
    const io::Packing packing =
        algorithm_.bits == 4 ? io::Packing::kPairsOfRows : io::Packing::kBytes;
    return io::packed_integers(data.name, {&data, &scale, nullptr, nullptr, inputs(), offsets()},
                               {packing, algorithm_.bits, groups == 1 ? 0 : group});
  }

  const Algorithm& algorithm_;
  const bool row_major_;
  const int64_t group_;
  const TensorShapes& shapes_;
  const io::Checkpoint& checkpoint_;
  std::string stem_, rank_;
  std::vector<io::Checkpoint::Joined> joined_;
};

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view s) { return name.ends_with(s); });
}

}  // namespace

StatusOr<Quantization> read_trtllm_quantization(const json::object& config,
                                                const std::string& where) {
  Quantization out;
  Config outer(config, where);
  const json::object* quantization = outer.object("quantization");
  RETURN_IF_ERROR(outer.status());
  if (!quantization) return out;
  Config inner(*quantization, where + ": quantization");
  const std::string name = inner.string("quant_algo", std::string(kNoQuant));
  std::vector<std::string_view> names = {kNoQuant};
  for (const Algorithm& row : kAlgorithms) names.push_back(row.name);
  if (std::ranges::find(names, name) == names.end())
    inner.fail("quant_algo", fmt::format("'{}' is not one of null, {}", name.substr(0, 40),
                                         fmt::join(names, ", ")));
  out.cache = cache_algorithm(inner);
  const std::string layout = inner.string("weight_layout", "");
  if (!layout.empty() && layout != "row_major")
    inner.fail("weight_layout", fmt::format("'{}' is not row_major", layout.substr(0, 40)));
  if (inner.has("group_size")) out.group = inner.integer("group_size", 1, 1 << 30);
  RETURN_IF_ERROR(inner.status());
  out.row_major = layout == "row_major";
  // Cache scales are ignored, but their tensors must be known.
  out.method = name != kNoQuant ? name : out.cache != DType::kBF16 ? std::string(kNoQuant) : "";
  return out;
}

bool is_quantization_part(std::string_view name) {
  return ends_with_any(name, kParts) || ends_with_any(name, kLeftOut);
}

bool is_weight_only_name(std::string_view name) {
  if (!name.ends_with(".weight")) return false;
  name.remove_suffix(std::string_view(".weight").size());
  return ends_with_any(name, kWeightOnly);
}

Status join_rank_tensors(const Quantization& quantization, const TensorShapes& shapes,
                         io::Checkpoint& checkpoint) {
  static constexpr Algorithm kOnlyFloats = {kNoQuant, "", DType::kF32};
  const auto* found = std::ranges::find(kAlgorithms, quantization.method, &Algorithm::name);
  const Algorithm& algorithm = found == std::end(kAlgorithms) ? kOnlyFloats : *found;
  if (!algorithm.activations.empty())
    log_info("quant_algo {}: activations stay bf16, TensorRT-LLM rounds them to {}", algorithm.name,
             algorithm.activations);
  RankJoiner joiner(algorithm, quantization.row_major, quantization.group, shapes, checkpoint);
  for (const io::Checkpoint::Entry& entry : checkpoint.entries())
    RETURN_IF_ERROR(joiner.join(*entry.tensor));
  return checkpoint.join(std::move(joiner).joined());
}

}  // namespace nereid::models
