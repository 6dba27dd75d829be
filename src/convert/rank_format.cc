#include "convert/rank_format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "convert/weight_source.h"

namespace nereid::convert {

struct RankAlgorithm {
  std::string_view word;
  std::string_view quant_algo;
  kernels::WeightFormat format;          // of codes; a nonzero group stands for any
  RankType rounding = RankType::kFloat;  // rounding of floats; kFloat: stored codes are required
  std::string_view scales = ".per_channel_scale";
  std::string_view factors = "";  // tensor of input column factors, written as ones: the source has
                                  // them in norms and products
  bool row_major = false;         // row-major, not TensorRT-LLM's own order
  bool offsets = false;           // zero points; scales are [groups, out]
  bool one_scale = false;         // one scale per matrix
  std::string_view maker = "";    // `nereid quantize` options that make such codes
  bool static_inputs = false;

  bool has_groups() const { return format.group > 0; }
  // 4-bit codes with static inputs: inputs are f8e4m3, and scales have a global factor.
  bool has_float8_inputs() const { return has_pairs() && static_inputs; }
  DType input_type() const { return has_float8_inputs() ? DType::kF8E4M3 : format.inputs; }
  bool has_pairs() const { return format.bits == 4; }  // of rows, in bytes
  bool is_plugin() const { return factors == kSmoother; }
  // Scales include the static factors of input and result.
  bool has_static_results() const { return is_plugin() && static_inputs; }
  // Whether the layout can store a format.
  bool holds(const kernels::WeightFormat& f) const {
    return f.scheme == format.scheme && f.bits == format.bits && f.inputs == format.inputs &&
           (f.group == 0 || has_groups()) && (!f.zeros || offsets) && !f.minima && !f.ordered;
  }
  kernels::WeightFormat format_of(int64_t group) const {
    kernels::WeightFormat out = format;
    out.group = static_cast<int32_t>(group);
    return out;
  }
  static constexpr std::string_view kSmoother = ".smoother";
};

namespace {

constexpr kernels::WeightFormat kInt4Rows = {.scheme = kernels::Scheme::kInteger, .bits = 4};
constexpr kernels::WeightFormat kInt8Groups = {
    .scheme = kernels::Scheme::kInteger, .bits = 8, .group = 128};
constexpr std::string_view kWeightScales = ".weights_scaling_factor";
constexpr std::string_view kFactorOfScales = ".weights_scaling_factor_2";
constexpr std::string_view kRowScales = ".per_channel_scale";
constexpr std::string_view kFactors = ".prequant_scaling_factor";
constexpr std::string_view kSmoother = RankAlgorithm::kSmoother;
constexpr std::string_view kCacheFactor = ".kv_cache_scaling_factor";
constexpr std::string_view kInputFactor = ".activation_scaling_factor";
constexpr std::string_view kResultFactor = ".act_scale";
constexpr float kLargestByte = 127;
constexpr float kLargestPairHalf = 8;  // magnitude of -8

constexpr RankAlgorithm kAlgorithms[] = {
    {"int8", "W8A16", kernels::kInt8PerRow, RankType::kInt8, kRowScales, "", true},
    {"int4", "W4A16", kInt4Rows, RankType::kInt4, kRowScales, "", true},
    {"fp8_rowwise", "FP8_PER_CHANNEL_PER_TOKEN", kernels::kFp8PerRow, RankType::kFp8Rows},
    {"int4_awq", "W4A16_AWQ", kernels::kInt4Groups, RankType::kFloat, kWeightScales, kFactors,
     false, false, false, "int4_awq"},
    {.word = "w4a8_awq",
     .quant_algo = "W4A8_AWQ",
     .format = kernels::kInt4Groups,
     .scales = kWeightScales,
     .factors = kFactors,
     .static_inputs = true},
    {"int4_gptq", "W4A16_GPTQ", kernels::kInt4Groups, RankType::kFloat, kWeightScales, "", true,
     true, false, "int4_gptq"},
    {"int8_gptq", "W8A16_GPTQ", kInt8Groups, RankType::kFloat, kWeightScales, "", true, true},
    {"fp8", "FP8", kernels::kFp8PerRow, RankType::kFloat, kWeightScales, "", false, false, true,
     "fp8", true},
    {"int8_sq", "W8A8_SQ_PER_CHANNEL", kernels::kInt8Both, RankType::kFloat, kWeightScales,
     kFactors, false, false, false, "int8_sq", true},
    {"sq_per_channel_per_token", "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN", kernels::kInt8Both,
     RankType::kFloat, kRowScales, kSmoother, false, false, false, "w8a8"},
    {"sq_per_tensor_per_token", "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN", kernels::kInt8Both,
     RankType::kFloat, kRowScales, kSmoother, false, false, true},
    {.word = "sq_per_channel_per_tensor",
     .quant_algo = "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN",
     .format = kernels::kInt8Both,
     .factors = kSmoother,
     .static_inputs = true},
    {.word = "sq_per_tensor",
     .quant_algo = "W8A8_SQ_PER_TENSOR_PLUGIN",
     .format = kernels::kInt8Both,
     .factors = kSmoother,
     .one_scale = true,
     .static_inputs = true}};

std::string rank_words() {
  std::vector<std::string_view> all;
  for (const RankAlgorithm& row : kAlgorithms) all.push_back(row.word);
  return fmt::format("{}", fmt::join(all, ", "));
}

constexpr std::string_view kWeight = ".weight";

std::string rank_module(const models::RankTensor& tensor) {
  return tensor.name.substr(0, tensor.name.size() - kWeight.size());
}

bool is_qkv(const models::RankTensor& tensor) {
  return tensor.name.ends_with("attention.qkv.weight");
}

bool is_head(const models::RankTensor& tensor) { return tensor.name == "lm_head.weight"; }

// Whether a product's weight can be rounded; experts cannot in these layouts.
bool is_product(const models::RankTensor& tensor) {
  return tensor.shape.size() == 2 && models::is_weight_only_name(tensor.name);
}

// SmoothQuant plugins: tensor of static input factors next to a module.
std::string plugin_factor(const models::RankTensor& tensor) {
  constexpr std::pair<std::string_view, std::string_view> kBeside[] = {
      {"attention.qkv.weight", "input_layernorm.scale_to_int"},
      {"attention.dense.weight", "attention.quantization_scaling_factor"},
      {"mlp.fc.weight", "post_layernorm.scale_to_int"},
      {"mlp.proj.weight", "mlp.quantization_scaling_factor"}};
  for (const auto& [module, factor] : kBeside)
    if (tensor.name.ends_with(module))
      return tensor.name.substr(0, tensor.name.size() - module.size()) + std::string(factor);
  return "";
}

const io::Encoding& encoding_of(const graph::WeightPart& part, const io::Checkpoint& checkpoint) {
  return *checkpoint.find(part.tensor)->tensor->encoding;
}

}  // namespace

bool has_static_inputs(std::string_view weights) {
  const auto* found = std::ranges::find(kAlgorithms, weights, &RankAlgorithm::word);
  return found != std::end(kAlgorithms) && found->static_inputs;
}

StatusOr<RankFormat> RankFormat::create(const RankFormatOptions& options, const graph::Graph& graph,
                                        const io::Checkpoint& checkpoint,
                                        std::span<const std::vector<models::RankTensor>> ranks) {
  RankFormat out(options, graph, checkpoint);
  if (options.weights.empty()) return out;
  const auto* found = std::ranges::find(kAlgorithms, options.weights, &RankAlgorithm::word);
  if (found == std::end(kAlgorithms))
    return invalid_argument("weights: '{}' is not one of {}", options.weights.substr(0, 40),
                            rank_words());
  out.algorithm_ = found;
  bool has_codes = false;
  for (const auto& tensors : ranks)
    for (const models::RankTensor& tensor : tensors) {
      if (!models::is_weight_only_name(tensor.name) && !is_head(tensor)) continue;
      RETURN_IF_ERROR(out.check(tensor));
      has_codes |= out.use_of(tensor) != Use::kFloats;
      out.head_has_codes_ |= is_head(tensor) && out.use_of(tensor) == Use::kTaken;
    }
  if (const int64_t group = out.group_size(); has_codes && options.group > 0)
    if (group != options.group)
      return invalid_argument("group_size: {}, but the model has {}", options.group,
                              kernels::text_of(found->format_of(group)));
  if (has_codes) return out;
  const std::string maker =
      found->maker.empty()
          ? ""
          : fmt::format("; `nereid quantize --qformat {} --export_format tensorrt_llm` makes them",
                        found->maker);
  return invalid_argument(
      "weights: '{}' takes over {} weights (quant_algo {}), of which the model "
      "has none{}",
      found->word, kernels::text_of(found->format), found->quant_algo, maker);
}

Status RankFormat::check(const models::RankTensor& tensor) {
  const Use use = use_of(tensor);
  const std::string module = rank_module(tensor);
  if (use == Use::kTaken) {
    RETURN_IF_ERROR(find_group(tensor));
    const auto is_unseen = [&](auto magnitudes) {
      return !options_.magnitudes || largest(tensor, options_.magnitudes->*magnitudes) == 0;
    };
    if ((algorithm_->static_inputs && is_unseen(&Magnitudes::inputs)) ||
        (algorithm_->has_static_results() && is_unseen(&Magnitudes::outputs)))
      return invalid_argument(
          "weights: '{}' needs static factors of '{}': pass a calibration text (--calib_dataset "
          "FILE)",
          algorithm_->word, module);
    return infos(tensor).status();
  }
  if (use == Use::kRounded) return infos(tensor).status();
  if (is_head(tensor)) return ok();
  for (const models::RankBlock& block : tensor.blocks)
    for (const graph::WeightPart& part : graph_.weights[block.weight].parts)
      if (const io::StoredTensor& stored = *checkpoint_.find(part.tensor)->tensor;
          !rounds() && stored.encoding)
        return invalid_argument(
            "weights: '{}' is quant_algo {}, which cannot store tensor '{}': {}", algorithm_->word,
            algorithm_->quant_algo, part.tensor,
            stored.encoding->format() ? kernels::text_of(*stored.encoding->format())
                                      : "columns in an order, or with factors, of their own");
  if (std::ranges::find(excluded_, module) == excluded_.end()) excluded_.push_back(module);
  return ok();
}

// All grouped matrices must have the same group size.
Status RankFormat::find_group(const models::RankTensor& tensor) {
  if (!algorithm_->has_groups()) return ok();
  for (const models::RankBlock& block : tensor.blocks) {
    const graph::Weight& weight = graph_.weights[block.weight];
    const int64_t group = weight.stored->group_size(weight.k);
    int64_t& size = group < weight.k ? group_ : widest_;
    if (&size == &group_ && group_ != 0 && group != group_)
      return invalid_argument(
          "weights: '{}' has one group_size, and '{}' has groups of {} columns where others have "
          "{}",
          algorithm_->word, weight.name, group, group_);
    size = std::max(size, group);
  }
  return ok();
}

RankFormat::Use RankFormat::use_of(const models::RankTensor& tensor) const {
  const bool has_place =
      algorithm_ && (is_product(tensor) || (is_head(tensor) && !algorithm_->has_static_results()));
  if (!has_place || tensor.blocks.empty()) return Use::kFloats;
  const auto is_taken = [&](const models::RankBlock& block) {
    const graph::Weight& weight = graph_.weights[block.weight];
    return weight.stored && !block.transposed && algorithm_->holds(*weight.stored);
  };
  if (std::ranges::all_of(tensor.blocks, is_taken)) return Use::kTaken;
  return rounds() && is_product(tensor) ? Use::kRounded : Use::kFloats;
}

bool RankFormat::rounds() const {
  return options_.rounds && algorithm_->rounding != RankType::kFloat;
}

RankType RankFormat::rounding() const {
  return algorithm_ ? algorithm_->rounding : RankType::kFloat;
}

int64_t RankFormat::group_of(const models::RankTensor& tensor) const {
  if (!algorithm_->has_groups()) return 0;  // not rounded either
  const graph::Weight& weight = graph_.weights[tensor.blocks[0].weight];
  const int64_t group = weight.stored->group_size(weight.k);
  return group == weight.k ? 0 : group;
}

int64_t RankFormat::groups_of(const models::RankTensor& tensor) const {
  const int64_t group = group_of(tensor);
  return group == 0 ? 1 : (tensor.shape[1] + group - 1) / group;
}

bool RankFormat::has_cache_factor(const models::RankTensor& tensor) const {
  if (!is_qkv(tensor) || options_.cache == DType::kBF16) return false;
  return options_.cache == DType::kF8E4M3 ||
         (options_.magnitudes && largest(tensor, options_.magnitudes->outputs) > 0);
}

StatusOr<std::vector<io::TensorInfo>> RankFormat::infos(const models::RankTensor& tensor) const {
  std::vector<io::TensorInfo> out;
  const std::string module = rank_module(tensor);
  if (use_of(tensor) == Use::kFloats) {
    out.push_back({tensor.name, tensor.is_f32 ? DType::kF32 : options_.dtype, tensor.shape});
  } else {
    RETURN_IF_ERROR(check_shape(tensor));
    const int64_t n = tensor.shape[0], k = tensor.shape[1];
    const RankAlgorithm& a = *algorithm_;
    const bool is_float8 = a.format.scheme == kernels::Scheme::kFloat8;
    out.push_back(
        {tensor.name, is_float8 ? DType::kF8E4M3 : DType::kI8, {a.has_pairs() ? n / 2 : n, k}});
    const std::vector<int64_t> shape = shape_of_scales(tensor);
    const bool in_type = use_of(tensor) == Use::kRounded && !is_float8;
    out.push_back({module + std::string(a.scales), in_type ? options_.dtype : DType::kF32, shape});
    if (a.has_float8_inputs())
      out.push_back({module + std::string(kFactorOfScales), DType::kF32, {1}});
    if (a.offsets) out.push_back({module + ".zero", DType::kF32, shape});
    const bool reads_columns =
        tensor.name.ends_with("attention.dense.weight") || tensor.name.ends_with("mlp.proj.weight");
    if (a.is_plugin() && reads_columns)
      out.push_back({module + std::string(kSmoother), DType::kF32, {1, k}});
    if (a.factors == kFactors) out.push_back({module + std::string(kFactors), DType::kF32, {k}});
    if (a.has_static_results())
      out.push_back({module + std::string(kResultFactor), DType::kF32, {1, 1}});
    else if (a.static_inputs)
      out.push_back({module + std::string(kInputFactor), DType::kF32, {1}});
    if (const std::string factor = plugin_factor(tensor); a.is_plugin() && !factor.empty())
      out.push_back({factor, DType::kF32, {1}});
  }
  if (has_cache_factor(tensor))
    out.push_back(
        {module.substr(0, module.rfind('.')) + std::string(kCacheFactor), DType::kF32, {1}});
  return out;
}

Status RankFormat::check_shape(const models::RankTensor& tensor) const {
  const int64_t n = tensor.shape[0], k = tensor.shape[1];
  if (algorithm_->has_pairs() && n % 2 != 0)
    return invalid_argument(
        "weights: '{}' needs an even number of rows, '{}' has {}; allowed: int8", algorithm_->word,
        tensor.name, n);
  const int64_t group = group_of(tensor);
  if (group > 0 && (tensor.blocks[0].col % group != 0 || k % group != 0))
    return invalid_argument(
        "tp_size: a rank's {} columns of '{}' are not whole groups of {}; choose fewer ranks", k,
        tensor.name, group);
  return ok();
}

std::vector<int64_t> RankFormat::shape_of_scales(const models::RankTensor& tensor) const {
  const int64_t n = tensor.shape[0];
  if (algorithm_->offsets) return {groups_of(tensor), n};
  if (algorithm_->has_groups()) return {n, groups_of(tensor)};
  const bool is_one = algorithm_->one_scale && !(algorithm_->is_plugin() && is_qkv(tensor));
  if (algorithm_->is_plugin()) return {1, is_one ? 1 : n};
  return {is_one ? 1 : n};
}

Status RankFormat::append_codes(const models::RankTensor& tensor, const Append& append) const {
  constexpr size_t kMostBytes = size_t{1} << 20;  // at a time
  const auto width = static_cast<size_t>(tensor.shape[1]);
  const bool is_float8 = algorithm_->format.scheme == kernels::Scheme::kFloat8;
  const int32_t bits = algorithm_->format.bits;
  const auto sign = static_cast<uint8_t>(is_float8 ? 0 : 1 << (bits - 1));
  std::vector<std::byte> bytes;
  int64_t row = 0;
  const auto next = [&](const auto& code_at) -> Status {
    const bool upper = bits == 4 && row % 2 != 0;
    ++row;
    if (!upper) bytes.resize(bytes.size() + width);
    std::byte* const out = bytes.data() + bytes.size() - width;
    for (size_t col = 0; col < width; ++col)
      out[col] |= static_cast<std::byte>(code_at(static_cast<int64_t>(col)) << (upper ? 4 : 0));
    if (bytes.size() < kMostBytes || (bits == 4 && row % 2 != 0)) return ok();
    RETURN_IF_ERROR(append(bytes));
    bytes.clear();
    return ok();
  };
  for (const models::RankBlock& block : tensor.blocks)
    for (int64_t r = 0; r < block.rows; ++r) {
      const PartRow place = part_row(graph_.weights[block.weight], block.row + r);
      const io::Encoding& encoding = encoding_of(*place.part, checkpoint_);
      bool finite = true;
      RETURN_IF_ERROR(next([&](int64_t col) {
        const uint8_t code = encoding.code(place.row, block.col + col);
        finite &= !is_float8 || (code & 0x7fu) != 0x7fu;
        return code ^ sign;
      }));
      if (!finite)
        return invalid_argument("tensor '{}': row {} has a number that is not finite",
                                place.part->tensor, place.row);
    }
  while (row < tensor.shape[0]) RETURN_IF_ERROR(next([](int64_t) { return 0; }));
  return append(bytes);
}

StatusOr<std::vector<float>> RankFormat::stored(const models::RankTensor& tensor,
                                                bool offsets) const {
  const int64_t group = group_of(tensor), groups = groups_of(tensor);
  std::vector<float> out;
  for (const models::RankBlock& block : tensor.blocks)
    for (int64_t r = 0; r < block.rows; ++r) {
      const graph::Weight& weight = graph_.weights[block.weight];
      const PartRow place = part_row(weight, block.row + r);
      const io::Encoding& encoding = encoding_of(*place.part, checkpoint_);
      const int64_t first = group > 0 ? block.col / group : 0;
      for (int64_t g = first; g < first + groups; ++g) {
        const io::CodeGroup codes = encoding.group(place.row, g);
        if (!std::isfinite(codes.scale))
          return invalid_argument("tensor '{}': row {} has a scale that is not finite",
                                  place.part->tensor, place.row);
        const auto steps = static_cast<float>(weight.stored->default_zero() - codes.zero);
        out.push_back(offsets ? steps * codes.scale : codes.scale);
      }
    }
  out.resize(static_cast<size_t>(tensor.shape[0] * groups));
  return out;
}

float RankFormat::largest(const models::RankTensor& tensor,
                          const std::map<std::string, float>& of) const {
  float most = 0;
  for (const models::RankBlock& block : tensor.blocks)
    if (const auto it = of.find(graph_.weights[block.weight].name); it != of.end())
      most = std::max(most, it->second);
  return most;
}

float RankFormat::input_steps(const models::RankTensor& tensor) const {
  return kLargestByte / largest(tensor, options_.magnitudes->inputs);
}

float RankFormat::result_step(const models::RankTensor& tensor) const {
  return largest(tensor, options_.magnitudes->outputs) / kLargestByte;
}

StatusOr<std::vector<float>> RankFormat::numbers(const models::RankTensor& tensor,
                                                 const io::TensorInfo& part,
                                                 std::span<const float> rounded) const {
  const std::string_view name = part.name;
  int64_t count = 1;
  for (const int64_t size : part.shape) count *= size;
  const auto per_step = [&](DType type, float most) {
    return std::vector<float>{most / (type == DType::kF8E4M3 ? kLargestF8E4M3 : kLargestByte)};
  };
  if (name.ends_with(kCacheFactor)) {
    const float most = options_.magnitudes ? largest(tensor, options_.magnitudes->outputs) : 0;
    return most > 0 ? per_step(options_.cache, most) : std::vector<float>{1};
  }
  if (name.ends_with(kInputFactor))
    return per_step(algorithm_->input_type(), largest(tensor, options_.magnitudes->inputs));
  if (name.ends_with(kFactorOfScales)) {
    ASSIGN_OR_RETURN(const std::vector<float> scales, stored(tensor, false));
    float most = 0;
    for (const float scale : scales) most = std::max(most, std::fabs(scale) * kLargestPairHalf);
    return most > 0 ? per_step(DType::kF8E4M3, most) : std::vector<float>{1};
  }
  const bool has_results = algorithm_->has_static_results();
  if (has_results && name.ends_with(kResultFactor)) return std::vector<float>{result_step(tensor)};
  if (has_results && name == plugin_factor(tensor)) return std::vector<float>{input_steps(tensor)};
  const bool is_scales = name.ends_with(algorithm_->scales);
  if (!is_scales && !name.ends_with(".zero"))
    return std::vector<float>(static_cast<size_t>(count), 1);
  if (use_of(tensor) == Use::kRounded) return std::vector<float>(rounded.begin(), rounded.end());
  ASSIGN_OR_RETURN(std::vector<float> values, stored(tensor, !is_scales));
  if (values.size() != static_cast<size_t>(count)) {
    if (std::ranges::any_of(values, [&](float x) { return x != values[0]; }))
      return invalid_argument(
          "weights: quant_algo {} has one scale for '{}', whose rows have "
          "different scales",
          algorithm_->quant_algo, rank_module(tensor));
    values.resize(1);
  }
  if (has_results)  // readers multiply by both again
    for (float& value : values) value /= input_steps(tensor) * result_step(tensor);
  if (!algorithm_->offsets) return values;
  const auto groups = static_cast<size_t>(groups_of(tensor)), rows = values.size() / groups;
  std::vector<float> transposed(values.size());
  for (size_t i = 0; i < values.size(); ++i) transposed[i % groups * rows + i / groups] = values[i];
  return transposed;
}

bool RankFormat::adds_biases() const { return algorithm_ && algorithm_->has_groups(); }

json::object RankFormat::quantization() const {
  json::object out = {{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}};
  if (options_.cache != DType::kBF16)
    out["kv_cache_quant_algo"] = options_.cache == DType::kI8 ? "INT8" : "FP8";
  if (!algorithm_) return out;
  out["quant_algo"] = algorithm_->quant_algo;
  out["group_size"] = group_size() > 0 ? group_size() : kernels::kInt4Groups.group;
  out["smoothquant_val"] = options_.smoothing;
  out["clamp_val"] = nullptr;
  out["use_meta_recipe"] = false;
  out["has_zero_point"] = algorithm_->offsets;
  out["pre_quant_scale"] = algorithm_->factors == kFactors;
  json::array excluded = {"router", "transformer.vocab_embedding"};
  if (!head_has_codes_) excluded.insert(excluded.begin(), "lm_head");
  for (const std::string& module : excluded_) excluded.emplace_back(module);
  out["exclude_modules"] = excluded;
  if (algorithm_->row_major) out["weight_layout"] = "row_major";
  return out;
}

}  // namespace nereid::convert
