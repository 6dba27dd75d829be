#include "convert/rank_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace nereid::convert {
namespace {

constexpr float kLeastFp8Scale = 1.0f / (kLargestF8E4M3 * 512);

bool is_finite(F16 x) { return (x.bits & 0x7c00u) != 0x7c00u; }

float as_stored(float value, DType dtype) {
  if (dtype == DType::kBF16) return to_float(to_bf16(value));
  const F16 half = to_f16(value);
  return dtype == DType::kF16 && is_finite(half) ? to_float(half) : value;
}

}  // namespace

bool store_as(DType type, float value, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, &value, sizeof value);
  } else if (type == DType::kF16) {
    const F16 half = to_f16(value);
    if (!is_finite(half)) return false;
    std::memcpy(out, &half, sizeof half);
  } else {
    const BF16 rounded = to_bf16(value);
    if ((rounded.bits & 0x7f80u) == 0x7f80u) return false;
    std::memcpy(out, &rounded, sizeof rounded);
  }
  return true;
}

StatusOr<RankType> rank_type(std::string_view word) {
  if (word.empty()) return RankType::kFloat;
  if (word == "int8") return RankType::kInt8;
  if (word == "int4") return RankType::kInt4;
  if (word == "fp8_rowwise") return RankType::kFp8Rows;
  return invalid_argument("weights: '{}' is not one of int8, int4, fp8_rowwise",
                          word.substr(0, 40));
}

json::object quantization_of(RankType type, DType cache) {
  json::object out = {{"quant_algo", nullptr}, {"kv_cache_quant_algo", nullptr}};
  if (cache != DType::kBF16) out["kv_cache_quant_algo"] = cache == DType::kI8 ? "INT8" : "FP8";
  if (type == RankType::kFloat) return out;
  out["quant_algo"] = type == RankType::kInt8   ? "W8A16"
                      : type == RankType::kInt4 ? "W4A16"
                                                : "FP8_PER_CHANNEL_PER_TOKEN";
  out["exclude_modules"] = {"lm_head", "router", "transformer.vocab_embedding"};
  if (type != RankType::kFp8Rows) out["weight_layout"] = "row_major";
  return out;
}

bool is_rounded(RankType type, const models::RankTensor& tensor) {
  return type != RankType::kFloat && tensor.shape.size() == 2 &&
         models::is_weight_only_name(tensor.name);
}

StatusOr<std::vector<io::TensorInfo>> rounded_infos(RankType type, const models::RankTensor& tensor,
                                                    DType dtype) {
  const int64_t n = tensor.shape[0], k = tensor.shape[1];
  if (type == RankType::kInt4 && n % 2 != 0)
    return invalid_argument(
        "weight_only_precision: 'int4' needs an even number of rows, '{}' has {}; allowed: int8",
        tensor.name, n);
  const std::string stem = tensor.name.substr(0, tensor.name.rfind('.'));
  const bool is_fp8 = type == RankType::kFp8Rows;
  return std::vector<io::TensorInfo>{
      {tensor.name, is_fp8 ? DType::kF8E4M3 : DType::kI8, {type == RankType::kInt4 ? n / 2 : n, k}},
      {stem + ".per_channel_scale", is_fp8 ? DType::kF32 : dtype, {n}}};
}

void round_rows(RankType type, DType dtype, std::span<const float> rows, int64_t k,
                std::vector<std::byte>& codes, std::vector<float>& scales) {
  const size_t width = static_cast<size_t>(k);
  const int32_t half = type == RankType::kInt4 ? 8 : 128;  // integers are in [-half, half)
  for (size_t row = 0; row < rows.size() / width; ++row) {
    const std::span<const float> x = rows.subspan(row * width, width);
    float largest = 0;
    for (const float v : x) largest = std::max(largest, std::fabs(v));
    const bool is_fp8 = type == RankType::kFp8Rows;
    const float scale = is_fp8 ? std::max(largest / kLargestF8E4M3, kLeastFp8Scale)
                               : as_stored(largest / static_cast<float>(half), dtype);
    scales.push_back(scale);
    const bool upper = type == RankType::kInt4 && row % 2 != 0;
    if (!upper) codes.resize(codes.size() + width);
    std::byte* const out = codes.data() + codes.size() - width;
    for (size_t i = 0; i < width; ++i) {
      if (is_fp8) {
        out[i] = static_cast<std::byte>(to_f8e4m3(x[i] / scale).bits);
        continue;
      }
      const float steps = scale > 0 ? std::nearbyint(x[i] / scale) : 0;
      const auto integer = static_cast<int32_t>(
          std::clamp(steps, -static_cast<float>(half), static_cast<float>(half - 1)));
      if (type == RankType::kInt8)
        out[i] = static_cast<std::byte>(integer);
      else if (upper)
        out[i] |= static_cast<std::byte>((integer & 15) << 4);
      else
        out[i] = static_cast<std::byte>(integer & 15);
    }
  }
}

}  // namespace nereid::convert
