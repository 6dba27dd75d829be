#include "convert/packed_tensors.h"

#include <algorithm>
#include <span>

namespace nereid::convert {
namespace {

constexpr int64_t kWordBits = 32;

bool is_float8(const kernels::WeightFormat& format) {
  return format.scheme == kernels::Scheme::kFloat8;
}

// One tensor of f8e4m3 or i8 numbers, with scales per row.
bool is_bytes(const kernels::WeightFormat& format) {
  return is_float8(format) || format.inputs == DType::kI8;
}

// Packs fields of `bits` bits into words, first field lowest.
void pack_fields(std::span<const uint8_t> fields, int32_t bits, std::vector<uint32_t>& words) {
  const auto per = static_cast<size_t>(kWordBits / bits);
  for (size_t begin = 0; begin < fields.size(); begin += per) {
    uint32_t word = 0;
    for (size_t i = 0; i < std::min(per, fields.size() - begin); ++i)
      word |= uint32_t{fields[begin + i]} << (i * static_cast<size_t>(bits));
    words.push_back(word);
  }
}

json::value cache_config(DType cache) {
  if (cache == DType::kBF16) return nullptr;
  return {{"num_bits", 8},
          {"type", cache == DType::kI8 ? "int" : "float"},
          {"symmetric", true},
          {"strategy", "tensor"},
          {"dynamic", false}};
}

json::object group_config(const kernels::WeightFormat& format, const json::array& targets) {
  json::object weights = {
      {"num_bits", format.bits},    {"type", is_float8(format) ? "float" : "int"},
      {"symmetric", !format.zeros}, {"strategy", format.group > 0 ? "group" : "channel"},
      {"group_size", nullptr},      {"dynamic", false}};
  if (format.group > 0) weights["group_size"] = format.group;
  json::value inputs = nullptr;
  if (is_bytes(format))
    inputs = {{"num_bits", 8},
              {"type", is_float8(format) ? "float" : "int"},
              {"symmetric", true},
              {"strategy", "token"},
              {"dynamic", true}};
  return {{"targets", targets},
          {"weights", weights},
          {"input_activations", inputs},
          {"output_activations", nullptr}};
}

}  // namespace

bool can_store_packed(const kernels::WeightFormat& format, int64_t k) {
  return is_bytes(format) || (k % (kWordBits / format.bits) == 0 && k % format.group_size(k) == 0);
}

std::vector<io::TensorInfo> packed_infos(const kernels::WeightFormat& format,
                                         const std::string& name, int64_t n, int64_t k) {
  const int64_t groups = format.num_groups(k);
  if (is_bytes(format))
    return {{name, format.inputs, {n, k}}, {name + "_scale", DType::kF32, {n, 1}}};
  const int64_t per = kWordBits / format.bits;
  std::vector<io::TensorInfo> infos = {{name + "_packed", DType::kI32, {n, k / per}},
                                       {name + "_scale", DType::kF32, {n, groups}}};
  if (format.zeros)
    infos.push_back({name + "_zero_point", DType::kI32, {(n + per - 1) / per, groups}});
  infos.push_back({name + "_shape", DType::kI64, {2}});
  return infos;
}

Status write_packed(const kernels::WeightFormat& format, const RoundedTensor& tensor,
                    io::SafetensorsWriter& writer) {
  const auto scales = std::as_bytes(std::span(tensor.scales));
  if (is_bytes(format)) {
    std::vector<uint8_t> bytes = tensor.codes;
    if (!is_float8(format))  // signed
      for (uint8_t& byte : bytes) byte ^= 0x80u;
    RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(bytes))));
    return writer.append(scales);
  }
  constexpr size_t kMostWords = size_t{1} << 20;  // at a time
  std::vector<uint32_t> words;
  for (int64_t row = 0; row < tensor.n; ++row) {
    pack_fields(std::span(tensor.codes)
                    .subspan(static_cast<size_t>(row * tensor.k), static_cast<size_t>(tensor.k)),
                format.bits, words);
    if (words.size() < kMostWords && row + 1 < tensor.n) continue;
    RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(words))));
    words.clear();
  }
  RETURN_IF_ERROR(writer.append(scales));
  if (format.zeros) {  // packed along rows
    const int64_t per = kWordBits / format.bits, groups = format.num_groups(tensor.k);
    words.assign(static_cast<size_t>((tensor.n + per - 1) / per * groups), 0);
    for (int64_t row = 0; row < tensor.n; ++row)
      for (int64_t g = 0; g < groups; ++g)
        words[static_cast<size_t>(row / per * groups + g)] |=
            uint32_t{tensor.zeros[static_cast<size_t>(row * groups + g)]}
            << (row % per * format.bits);
    RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(words))));
  }
  const int64_t shape[] = {tensor.n, tensor.k};
  return writer.append(std::as_bytes(std::span(shape)));
}

json::object packed_config(const kernels::WeightFormat& format,
                           const std::vector<std::string>& ignored, const ModulesOfFormat& others,
                           DType cache) {
  json::object groups = {{"group_0", group_config(format, {"Linear"})}};
  if (!others.names.empty())
    groups["group_1"] =
        group_config(others.format, json::array(others.names.begin(), others.names.end()));
  return {{"quant_method", "compressed-tensors"},
          {"format", is_float8(format)  ? "float-quantized"
                     : is_bytes(format) ? "int-quantized"
                                        : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", groups},
          {"ignore", json::array(ignored.begin(), ignored.end())},
          {"kv_cache_scheme", cache_config(cache)}};
}

}  // namespace nereid::convert
